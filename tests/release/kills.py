"""Runs processes that race for a ledger or are killed; tests run it.

Children are forked from a process that has imported everything, so that they
run at the same time. Errors are printed as JSON.
"""

import contextlib
import fractions
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from dpjax.cli import estimate
from dpjax.release import ledger
from dpjax.release import streams
from tests.release import spending

_QUERY = {'statistic': 'sum'}
_SIZE = 10**12


def _child(work):
  """Starts a process that does `work` and ends; returns its id."""
  pid = os.fork()
  if pid:
    return pid
  status = 1
  try:
    with open(os.devnull, 'w', encoding='utf-8') as nowhere:
      with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(
          nowhere):
        work()
    status = 0
  finally:
    os._exit(status)


def _wait(pid):
  return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _killed_at(step):
  """Ends this process at a given step of everything that changes files.

  Steps are counted in halves: before and after each call, or when half of a
  write is written.
  """
  count = 0

  def patched(name):
    real = getattr(os, name)

    def call(*args, **named):
      nonlocal count
      count += 1
      if count == step:
        if name == 'write':
          real(args[0], args[1][:len(args[1]) // 2])
        os._exit(9)
      result = real(*args, **named)
      count += 1
      if count == step:
        os._exit(9)
      return result
    setattr(os, name, call)

  for name in ('write', 'fsync', 'replace', 'rename', 'unlink', 'mkdir',
               'ftruncate'):
    patched(name)


def _release(path, dataset=None, data='a'):
  return spending.release(path, query=_QUERY, size=_SIZE, dataset=dataset,
                          data=data)


def _state(path):
  """Returns 'unpaid', 'paid' or 'answered', and the answer to be given."""
  account = ledger.read(path)
  for entry in account.entries[1:]:
    if entry.answer:
      text = pathlib.Path(f'{path}.answers/{entry.number}.json').read_text()
      return 'answered', json.loads(text)
    secret = pathlib.Path(f'{path}.secrets/{entry.seal}').read_bytes()
    context = json.dumps([_QUERY, account.salted(spending.sha256('a'))],
                         sort_keys=True).encode()
    return 'paid', {'value': streams.SecretStream(secret, context)(_SIZE)}
  return 'unpaid', None


def steps(every):
  """Kills a release at each step, then finishes it.

  Args:
    every: 1 for each of three kinds of ledgers and data at each step, 3 for one
      of them, in turn.
  """
  wrong, seen, step = [], {}, 0
  while True:
    step += 1
    kinds = ((None, 'a'), ('survey', 'a'), ('survey', 'b'))
    for dataset, data in kinds[step % every::every]:
      folder = pathlib.Path(tempfile.mkdtemp())
      path = folder / 'ledger'
      spending.release(path, dataset=dataset)
      ended = _wait(_child(lambda: (_killed_at(step), _release(path, dataset))))
      if ended not in (0, 9):
        wrong.append([step, dataset, data, 'fails'])
      state, answer = _state(path)
      given = _release(path, dataset, data)
      entries = ledger.read(path).entries
      again = state == 'answered' and dataset is not None
      # A new release of a named data set, or a new version, has new noise.
      same = answer is not None and not again and data == 'a'
      if (len(entries) != 2 + again or same != (given == answer) or
          any(entry.answer is None for entry in entries) or
          list(folder.glob('*.secrets/*'))):
        wrong.append([step, dataset, data, state, len(entries)])
      seen[state] = seen.get(state, 0) + 1
      shutil.rmtree(folder)
    if not ended:
      return {'wrong': wrong, 'seen': seen}


def _words(folder, output, **changed):
  flags = {'input': folder / 'people.csv', 'statistic': 'mean', 'column': 'age',
           'lower': 0, 'upper': 100, 'epsilon': '0.5',
           'adjacency': 'add_or_remove_one', 'output': folder / output,
           'ledger': folder / 'ledger', 'ledger_budget_epsilon': 2, **changed}
  return ['estimate', *(f'--{name}={value}' for name, value in flags.items())]


def _folder():
  folder = pathlib.Path(tempfile.mkdtemp())
  (folder / 'people.csv').write_text('age\n' + ''.join(
      f'{20 + i % 50}\n' for i in range(2_000)))
  return folder


def _estimate(folder, output, **changed):
  return _child(lambda: estimate.main(estimate.parse(
      _words(folder, output, **changed))))


def _answers(folder):
  return {(folder / name).read_bytes() for name in os.listdir(folder)
          if name.startswith('out')}


def races(number, processes):
  """Asks one query by many processes at once, and two by half of them each."""
  wrong = []
  for race in range(number):
    folder, queries = _folder(), 1 + race % 2
    ended = [_wait(pid) for pid in [
        _estimate(folder, f'out{place}', upper=100 + place % queries)
        for place in range(processes)]]
    account = ledger.read(folder / 'ledger')
    if (any(ended) or len(account.entries) != queries or
        len(_answers(folder)) != queries or
        account.spent() != fractions.Fraction(queries, 2)):
      wrong.append([race, ended, len(account.entries)])
    shutil.rmtree(folder)
  return {'wrong': wrong, 'done': number}


def kills(number):
  """Kills releases at random times, some of them several times."""
  wrong, random_time = [], random.Random(3)
  started = time.monotonic()
  folder = _folder()
  _wait(_estimate(folder, 'out'))
  whole = time.monotonic() - started
  shutil.rmtree(folder)
  for kill in range(number):
    folder, answered = _folder(), set()
    for _ in range(1 + kill % 3):
      pid = _estimate(folder, 'out')
      time.sleep(random_time.uniform(0, whole))
      os.kill(pid, signal.SIGKILL)
      _wait(pid)
      answered |= {path.read_bytes() for path in folder.glob(
          'ledger.answers/1.json')}
    # An existing answer is the one that will be given.
    ended = [_wait(_estimate(folder, f'out{place}')) for place in range(2)]
    account = ledger.read(folder / 'ledger')
    answered.add((folder / 'ledger.answers' / '1.json').read_bytes())
    if (any(ended) or len(account.entries) != 1 or len(_answers(folder)) != 1 or
        len(answered) != 1 or account.spent() != fractions.Fraction(1, 2)):
      wrong.append([kill, ended, len(account.entries), len(answered)])
    shutil.rmtree(folder)
  return {'wrong': wrong, 'done': number}


if __name__ == '__main__':
  what, *sizes = sys.argv[1:]
  print(json.dumps({'steps': steps, 'races': races, 'kills': kills}[what](
      *map(int, sizes))))
