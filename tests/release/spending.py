"""Provides releases for the ledger tests, and their costs."""

import fractions
import hashlib
import itertools

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger
from dpjax.release import reservations
from dpjax.release.costs import Cost

ONE = ledger.Budget(epsilon=fractions.Fraction(1), delta=fractions.Fraction(0))
TENTH = Cost(epsilon=fractions.Fraction(1, 10))
_NUMBERS = itertools.count()


def sha256(data):
  """Returns the hash of a text, as that of a file."""
  return hashlib.sha256(data.encode()).hexdigest()


def held(path, *, dataset=None, adjacency=Adjacency.ADD_OR_REMOVE_ONE,
         budget=ONE):
  """Returns a lock of a ledger, as `reservations.held`."""
  return reservations.held(path, dataset=dataset, adjacency=adjacency,
                           budget=budget)


def release(path, cost=TENTH, *, data='a', query=None, size=10**6, **ledger_of):
  """Returns an answer as a release does; `size` is the range of its noise."""
  query = query or {'statistic': 'count', 'number': next(_NUMBERS)}
  with held(path, **ledger_of) as lock:
    lock.check(query, cost)
    lock.check_data(sha256(data))
    known = lock.answer(query)
    if known is not None:
      return known
    reserved = lock.reserve(query, cost, sha256(data))
    with lock.drawing(reserved.entry):
      answer = {'value': reserved.below(size)}
    return lock.commit(reserved.entry, answer)


def spend(path, cost=TENTH, **how):
  """Returns the entry of a release of a query that was never asked."""
  release(path, cost, **how)
  return ledger.read(path).entries[-1]
