"""A fresh process that makes one program and times it when asked.

The first line on stdin is a spec, each further one a request; each is answered
by one line on stdout. So the parent can go through all programs round by
round, each compiled once and alone with its memory.
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
  """The program of a spec."""
  maker = methods.find(spec.suite, spec.method).maker
  module = importlib.import_module(f'experiments.benchmarks.{maker}')
  return module.make(spec)


def warm_up(program: Program) -> dict[str, float]:
  """Runs the first steps; returns what they and making the program told."""
  if program.times is not None:  # it ran when it was made
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
  """What came of a request: a sample, or an audit written to a file."""
  if 'audit' in request:
    with open(request['audit'], 'wb') as file:
      pickle.dump(program.audit(), file)
    return {}
  return programs.sample(program, request['seconds'])._asdict()


def main() -> None:
  """Reads requests until there are no more."""
  # What libraries print must not come between the answers.
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
  """What to send first; a program that is audited must not have run."""
  return json.dumps({**dataclasses.asdict(spec), 'audited': audited})


if __name__ == '__main__':
  main()
