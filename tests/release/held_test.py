"""What a held ledger refuses by itself, whatever its caller has checked."""

import fractions

import pytest

from dpjax.release import ledger
from dpjax.release.costs import Cost
from tests.release import spending

Fraction = fractions.Fraction


def test_what_was_not_checked_before_is_checked_when_it_is_reserved(tmp_path):
  path = tmp_path / 'ledger'
  with spending.held(path) as lock:
    with pytest.raises(ValueError, match='exceeded'):
      lock.reserve({}, Cost(epsilon=Fraction(2)), spending.sha256('a'))
  assert not path.exists()
  spending.spend(path, Cost(epsilon=Fraction(19, 20)))
  before = path.read_bytes()
  with spending.held(path) as lock:
    with pytest.raises(ValueError, match='exceeded'):
      lock.reserve({}, spending.TENTH, spending.sha256('a'))
  assert path.read_bytes() == before
  assert not list(tmp_path.glob('ledger.secrets/*'))
  assert ledger.read(path).spent() == Fraction(19, 20)
