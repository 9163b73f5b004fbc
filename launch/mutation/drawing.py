"""Draws mutants of a package at random, or finds known ones again."""

from collections.abc import Sequence
import random

from launch.mutation import operators
from launch.mutation import places


def every(place: places.Place) -> list[operators.Mutant]:
  """Returns all mutants of a package; a few may be invalid Python."""
  optional = operators.declared(
      path.read_bytes() for path in (place.root / place.library).rglob('*.py'))
  return [mutant for file in place.sources() for mutant in operators.find(
      file, (place.root / file).read_bytes(), optional)]


def draw(place: places.Place, mutants: Sequence[operators.Mutant], *, num: int,
         seed: int) -> list[operators.Mutant]:
  """Draws valid mutants of different lines.

  Draws a line first, then a kind of fault, then a mutant of that kind.
  Otherwise long formulas, which have many mutants, and common kinds would
  dominate.

  Args:
    place: the package.
    mutants: mutants to choose from.
    num: number of mutants; fewer are drawn if there are fewer lines.
    seed: seed of the draw.
  """
  rng = random.Random(seed)
  by_line: dict[tuple[str, int], dict[str, list[operators.Mutant]]] = {}
  for mutant in mutants:
    by_line.setdefault((mutant.file, mutant.line), {}).setdefault(
        mutant.operator, []).append(mutant)
  lines = sorted(by_line)
  rng.shuffle(lines)
  drawn: list[operators.Mutant] = []
  for file, line in lines:
    source = (place.root / file).read_bytes()
    kinds = {kind: valid for kind, all_of_it in sorted(
        by_line[file, line].items()) if (valid := [
            mutant for mutant in all_of_it if mutant.is_valid(source)])}
    if kinds and len(drawn) < num:
      drawn.append(rng.choice(kinds[rng.choice(list(kinds))]))
    if len(drawn) == num:
      break
  return drawn


def find_again(mutants: Sequence[operators.Mutant],
               known: Sequence[operators.Mutant]) -> list[operators.Mutant]:
  """Returns known mutants at their present lines, without changed lines."""
  identity = lambda mutant: (mutant.file, mutant.operator, mutant.before,
                             mutant.after)
  present: dict[tuple[str, ...], list[operators.Mutant]] = {}
  for mutant in mutants:
    present.setdefault(identity(mutant), []).append(mutant)
  return [min(present[identity(mutant)],
              key=lambda other: abs(other.line - mutant.line))
          for mutant in known if identity(mutant) in present]
