"""These tests check that all processes receive what the first one knows.

One process plays all of them.
"""

import jax
from jax.experimental import multihost_utils
import numpy as np
import pytest

from dpjax.train import processes


class _Group:
  """Plays two processes in turn and keeps the messages of the first."""

  def __init__(self, monkeypatch):
    self.messages, self.index = [], 0
    monkeypatch.setattr(jax, 'process_count', lambda: 2)
    monkeypatch.setattr(jax, 'process_index', lambda: self.index)
    monkeypatch.setattr(multihost_utils, 'broadcast_one_to_all', self._send)

  def _send(self, value):
    if not self.index:
      self.messages.append(np.array(value))
      return self.messages[-1]
    sent = self.messages.pop(0)
    # All processes must pass values of one shape and type.
    assert sent.shape == value.shape and sent.dtype == value.dtype
    return sent

  def both(self, function):
    """Returns what each process returns or raises."""
    results = []
    for self.index in range(2):
      try:
        results.append(processes.from_first(lambda: function(self.index)))
      except Exception as error:
        results.append(error)
    assert not self.messages
    return results


@pytest.mark.parametrize('value', [None, 'a', {'steps': [1, 2], 'x': 'y' * 999},
                                   np.float64(2.5)])
def test_values_of_the_first_process_are_those_of_all(monkeypatch, value):
  called = []
  results = _Group(monkeypatch).both(
      lambda index: called.append(index) or value)
  assert results == [value, value] and called == [0]


def test_what_the_first_process_raises_all_raise(monkeypatch):
  def fails(index):
    raise KeyError(f'nothing here, {index}')

  first, other = _Group(monkeypatch).both(fails)
  assert type(first) is KeyError and type(other) is ValueError
  assert 'nothing here, 0' in str(first) and 'nothing here, 0' in str(other)


def test_one_process_asks_nobody(monkeypatch):
  monkeypatch.setattr(multihost_utils, 'broadcast_one_to_all', None)
  assert processes.from_first(lambda: 5) == 5 and processes.is_first()
  with pytest.raises(ZeroDivisionError):
    processes.from_first(lambda: 1 / 0)
