"""A process that builds one program and times it on request.

The first line on stdin is a spec, each further line a request; the answer to
each is one line on stdout. The parent can therefore sample all programs round
by round, while each is compiled once and has its own memory.
"""

import dataclasses
import importlib
import json
import os
import pickle
import sys
import time
from typing import Any

from experiments.benchmarks import machine
from experiments.benchmarks import methods
from experiments.benchmarks import program as programs
from experiments.benchmarks.program import Program
from experiments.benchmarks.program import Spec

_QUICK = 1.0


def make(spec: Spec) -> Program:
  """Builds the program of a specification."""
  maker = methods.find(spec.suite, spec.method).maker
  module = importlib.import_module(f'experiments.benchmarks.{maker}')
  return module.make(spec)


def warm_up(program: Program) -> dict[str, float]:
  """Runs the first steps; returns metrics of them and of building the program.
  """
  if program.times is not None:  # The program ran when it was built.
    return dict(program.info)
  before = machine.forget_peak()
  started = time.perf_counter()
  program.step()
  first = time.perf_counter() - started
  if first < _QUICK:
    program.step()
    program.step()
  peak = (machine.peak_kib() - before if program.peak_kib is None
          else program.peak_kib())
  program.tidy()
  return {**program.info, 'first_step_seconds': first, 'peak_kib': peak,
          'accelerator': float(program.peak_kib is not None)}


def answer(program: Program, request: dict[str, Any]) -> dict[str, Any]:
  """Returns the answer to a request: a sample, or {} after writing an audit."""
  if 'audit' in request:
    with open(request['audit'], 'wb') as file:
      pickle.dump(program.audit(), file)
    return {}
  return programs.sample(program, request['seconds'])._asdict()


def main() -> None:
  """Reads requests until there are no more."""
  # Output of libraries goes to stderr, so that stdout has answers only.
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  machine.be_first_to_go()
  first = json.loads(sys.stdin.readline())
  audited = first.pop('audited')
  program = make(Spec(**first))
  print(json.dumps({} if audited else warm_up(program)), file=answers,
        flush=True)
  for line in sys.stdin:
    print(json.dumps(answer(program, json.loads(line))), file=answers,
          flush=True)


def first_line(spec: Spec, *, audited: bool) -> str:
  """Returns the first line for a worker; an audited program must not run."""
  return json.dumps({**dataclasses.asdict(spec), 'audited': audited})


if __name__ == '__main__':
  main()
