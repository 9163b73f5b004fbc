"""Counts what devices send each other in a compiled program."""

import math
import re
from typing import NamedTuple

KINDS = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all',
         'collective-permute', 'collective-broadcast')
_BYTES = {'pred': 1, 's8': 1, 'u8': 1, 'bf16': 2, 'f16': 2, 's16': 2, 'u16': 2,
          'f32': 4, 's32': 4, 'u32': 4, 'f64': 8, 's64': 8, 'u64': 8}
_ARRAY = re.compile(r'\b([a-z]+\d*)\[([\d,]*)\]')
_INSTRUCTION = re.compile(
    rf' = (.*?) ({"|".join(KINDS)})(?:-start)?\((.*?)\)')


class Collective(NamedTuple):
  """One instruction of a compiled program.

  Attributes:
    kind: one of `KINDS`.
    times: how often it runs; 1 for each loop of unknown length around it.
    sizes: bytes of its results on one device, or of its operands if they are
      larger.
    shapes: of its results.
  """
  kind: str
  times: int
  sizes: tuple[int, ...]
  shapes: tuple[tuple[int, ...], ...]


def _arrays(text):
  return [(tuple(map(int, filter(None, dims.split(',')))), _BYTES[kind])
          for kind, dims in _ARRAY.findall(text) if kind in _BYTES]


def collectives(program):
  """Returns the collectives of the text of a compiled program."""
  bodies, name = {}, None
  for line in program.splitlines():
    # A computation begins in the first column.
    if line and not line[0].isspace():
      match = re.match(r'(?:ENTRY )?%?([\w.\-]+) \(', line)
      name = match.group(1) if match else name
    bodies.setdefault(name, []).append(line)
  times = _times(bodies, re.search(r'ENTRY %?([\w.\-]+)', program).group(1))
  found = []
  for name, lines in bodies.items():
    shapes = {m.group(1): m.group(2) for line in lines for m in [re.match(
        r'\s+(?:ROOT )?(%?[\w.\-]+) = (.*?) [\w\-]+\(', line)] if m}
    for line in lines:
      for results, kind, operands in _INSTRUCTION.findall(line):
        results = _arrays(results)
        given = _arrays(' '.join(shapes.get(each.strip(), each)
                                 for each in operands.split(',')))
        size = lambda arrays: [math.prod(s) * width for s, width in arrays]
        found.append(Collective(
            kind, times.get(name, 0),
            tuple(max(size(results), size(given), key=sum)),
            tuple(s for s, _ in results)))
  return found


def _times(bodies, entry):
  """Returns how often each computation runs."""
  times = {entry: 1}
  waiting = [entry]
  while waiting:
    name = waiting.pop()
    for line in bodies.get(name, ()):
      trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
      count = int(trips.group(1)) if trips else 1
      called = re.findall(
          r'(?:body|condition|to_apply|calls|true_computation|'
          r'false_computation)=%?([\w.\-]+)', line)
      for group in re.findall(r'branch_computations=\{([^}]*)\}', line):
        called += [each.strip(' %') for each in group.split(',')]
      for other in called:
        times[other] = times.get(other, 0) + times[name] * count
        waiting.append(other)
  return times


def totals(program):
  """Returns {kind: (number of runs, bytes of all runs)} on one device."""
  counted = {}
  for each in collectives(program):
    number, size = counted.get(each.kind, (0, 0))
    counted[each.kind] = (number + each.times,
                          size + each.times * sum(each.sizes))
  return counted


def largest(program):
  """Returns the bytes of the largest array that devices exchange at once."""
  return max((max(each.sizes) for each in collectives(program)), default=0)
