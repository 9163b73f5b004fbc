"""Tests a ledger's files, written a second time by the standard library."""

import fractions
import hashlib
import json

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger
from dpjax.release import reservations
from dpjax.release import streams
from dpjax.release.costs import Cost
from tests.release import spending

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_QUERY = {'statistic': 'sum', 'bins': []}
_SECRET = bytes(range(7, 39))


def _digest(text):
  return hashlib.sha256(text.encode()).hexdigest()


def _written(*bodies):
  """Returns lines of a ledger of format 2, whose digests form a chain."""
  lines, previous = [], ''
  for body in bodies:
    previous = _digest(previous + json.dumps(body, sort_keys=True))
    lines.append(json.dumps({**body, 'digest': previous}, sort_keys=True))
  return ''.join(f'{line}\n' for line in lines).encode()


def _header(**changed):
  return {'version': 2, 'dataset': None, 'salt': 'ab', 'data': 'cd',
          'adjacency': 'replace_one', 'epsilon': '3/2', 'delta': '1/1000000',
          **changed}


def _reserved(number, cost):
  return {'kind': 'reserved', 'number': number, 'query': _QUERY, 'cost': cost,
          'seal': 'ef'}


def test_a_ledger_of_this_format_is_read(tmp_path):
  path = tmp_path / 'ledger'
  content = _written(
      _header(), _reserved(1, {'epsilon': '1/3'}),
      {'kind': 'answered', 'number': 1, 'answer': '12'},
      _reserved(2, {'rho': '1/8', 'choices': ['1/4', '1/2']}))
  path.write_bytes(content)
  account = ledger.read(path)
  assert account == ledger.Account(
      dataset=None, data='cd', salt='ab', adjacency=Adjacency.REPLACE_ONE,
      budget=ledger.Budget(epsilon=Fraction(3, 2), delta=Fraction(1, 10**6)),
      digest=account.digest, entries=(
          ledger.Entry(number=1, cost=Cost(epsilon=Fraction(1, 3)),
                       query=_QUERY, seal='ef', answer='12'),
          ledger.Entry(number=2, query=_QUERY, seal='ef', cost=Cost(
              rho=Fraction(1, 8), choices=(Fraction(1, 4), Fraction(1, 2))))))
  # The next line has the same format.
  more, line = ledger.with_line(account, _reserved(3, {'epsilon': '2'}))
  path.write_bytes(content + line)
  assert ledger.read(path) == more
  assert line == _written(
      _header(), _reserved(1, {'epsilon': '1/3'}),
      {'kind': 'answered', 'number': 1, 'answer': '12'},
      _reserved(2, {'rho': '1/8', 'choices': ['1/4', '1/2']}),
      _reserved(3, {'epsilon': '2'})).splitlines(keepends=True)[-1]
  assert ledger.with_header(ledger.Account(
      dataset=None, data='cd', salt='ab', adjacency=account.adjacency,
      budget=account.budget))[1] == _written(_header())


def test_no_digit_of_a_digest_may_be_another():
  content = _written(_header(), _reserved(1, {'epsilon': '1/3'}))
  first = content.index(b'"digest": "') + len(b'"digest": "')
  last = content.rindex(b'"digest": "') + len(b'"digest": "')
  ledger.parse(content, 'ledger')
  for place in [*range(first, first + 64), *range(last, last + 64)]:
    other = b'1' if content[place:place + 1] != b'1' else b'2'
    with pytest.raises(ValueError, match='was changed after it was written'):
      ledger.parse(content[:place] + other + content[place + 1:], 'ledger')


def test_secrets_are_those_of_the_system_and_seals_their_hashes(
    tmp_path, monkeypatch):
  """Secrets come from the system, and noise from their stream per query."""
  path, sizes = tmp_path / 'ledger', []

  def token_bytes(size):
    sizes.append(size)
    return _SECRET[:size]

  monkeypatch.setattr(reservations.secrets, 'token_bytes', token_bytes)
  with spending.held(path) as lock:
    reservation = lock.reserve(_QUERY, spending.TENTH, spending.sha256('a'))
    salt = lock.account.salt
  assert sizes[-1] == 32 and len(salt) == 32
  assert reservation.entry.seal == hashlib.sha256(b'seal' + _SECRET).hexdigest()
  secret, = (tmp_path / 'ledger.secrets').iterdir()
  assert (secret.name, secret.read_bytes()) == (reservation.entry.seal, _SECRET)
  data = _digest(f'{salt} {spending.sha256("a")}')
  assert ledger.read(path).data == data
  context = json.dumps([_QUERY, data], sort_keys=True).encode()
  assert reservation.below(2**64) == streams.SecretStream(_SECRET,
                                                          context)(2**64)


def test_a_stream_is_the_one_of_its_definition():
  """Block i is SHAKE-256 of the secret, SHA-256 of the context, and i."""
  context = b'only for this test'
  below = streams.SecretStream(_SECRET, context)
  blocks = b''.join(hashlib.shake_256(
      _SECRET + hashlib.sha256(context).digest() + index.to_bytes(8, 'big')
  ).digest(8192) for index in range(3))
  assert below(2**(8 * 20_000)) == int.from_bytes(blocks[:20_000], 'big')
  # It reads the least number of bits, from the start of whole bytes.
  below = streams.SecretStream(_SECRET, context)
  drawn = [below(1000) for _ in range(300)]
  tries = [int.from_bytes(blocks[place:place + 2], 'big') >> 6
           for place in range(0, 800, 2)]
  assert drawn == [each for each in tries if each < 1000][:300]


def test_a_finished_release_says_what_it_would_have_said(tmp_path):
  """A resumed release summarises the ledger as it was when it was paid."""
  path = tmp_path / 'ledger'
  with spending.held(path, dataset='survey') as lock:
    first = lock.reserve(_QUERY, spending.TENTH, spending.sha256('a'))
  for _ in range(2):
    spending.release(path, dataset='survey')
  with spending.held(path, dataset='survey') as lock:
    again = lock.reserve(_QUERY, spending.TENTH, spending.sha256('b'))
  assert again.resumed and not first.resumed
  assert again.entry == first.entry == again.account.entries[-1]
  assert again.account.summary() == first.account.summary() == {
      'entry': 1, 'spent_epsilon': .1, 'budget_epsilon': 1., 'budget_delta': 0.}


@pytest.mark.parametrize('mode', [0o640, 0o604, 0o611])
def test_a_ledger_that_others_may_open_is_closed(tmp_path, mode):
  path = tmp_path / 'ledger'
  spending.spend(path)
  path.chmod(mode)
  with spending.held(path):
    assert path.stat().st_mode & 0o777 == 0o600
