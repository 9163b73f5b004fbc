"""Tests sealed, packed and stored bytes of the enrolment."""

import hashlib
import hmac
import io
import json

import numpy as np
import pytest

from dpjax.mpc import schemes
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import parameters as public
from dpjax.mpc.parties import storage
from dpjax.mpc.parties import wire
from tests.mpc.studies import parameters


def _big(number):
  return number.to_bytes(4, 'big')


@pytest.mark.parametrize('owner', [0, 259, 2**32 - 1])
def test_a_token_is_a_digest_of_the_owner_by_the_key(owner):
  wanted = hmac.new(b'k' * 32, b'owner' + _big(owner), hashlib.sha256).digest()
  assert enrolment.token(b'k' * 32, owner) == wanted


def test_a_sealed_message_is_what_the_cipher_makes_of_it():
  """Seals are AES-256-GCM, keyed by token, study and server, for one owner."""
  from cryptography.hazmat.primitives.ciphers import aead
  token, digest, nonce = bytes(range(32)), b'd' * 32, b'0123456789ab'
  named = dict(owner=7, digest=digest, server='server1')
  sealed = enrolment.seal(token, b'message', source=lambda size: nonce[:size],
                          **named)
  key = hmac.new(token, digest + b'server1', hashlib.sha256).digest()
  assert sealed[:12] == nonce
  assert aead.AESGCM(key).decrypt(nonce, sealed[12:], _big(7)) == b'message'
  assert len(sealed) == 7 + enrolment.SEAL_BYTES == 7 + 28
  assert enrolment.unseal(token, sealed, **named) == b'message'
  for change in (dict(owner=8), dict(digest=bytes(32)), dict(server='server2')):
    with pytest.raises(ValueError, match='its seal does not hold'):
      enrolment.unseal(token, sealed, **named | change)
  for wrong in (b'', sealed[:20], sealed[:-1], sealed + b'x'):
    with pytest.raises(ValueError, match='its seal does not hold'):
      enrolment.unseal(token, wrong, **named)


def test_entries_of_a_batch_stand_one_after_the_other():
  batch = enrolment.entry(3, b'abc') + enrolment.entry(2**32 - 1, b'')
  assert batch == _big(3) + _big(3) + b'abc' + b'\xff' * 4 + _big(0)
  assert enrolment.ENTRY_BYTES == 8 and enrolment.AROUND_BYTES == 8 + 28 + 8
  assert list(enrolment.entries(batch)) == [(3, b'abc'), (2**32 - 1, b'')]
  assert not list(enrolment.entries(b''))
  for end in range(1, len(batch)):
    if end == 11:
      assert list(enrolment.entries(batch[:end])) == [(3, b'abc')]
      continue
    with pytest.raises(enrolment.TornBatch, match=(
        'message of owner 3' if 8 <= end < 11 else 'within an entry')):
      list(enrolment.entries(batch[:end]))


def test_numbers_in_payloads_have_as_many_bits_as_they_need():
  assert [wire.point_bits(number) for number in (2, 3, 4, 5, 1024, 1025)] == [
      1, 2, 2, 3, 10, 11]
  values = np.array([[0, 9], [5, 1]])
  data = wire.pack(values, 4)
  assert data == bytes([0x09, 0x51])
  np.testing.assert_array_equal(wire.unpack(data, (2, 2), 4), values)
  np.testing.assert_array_equal(wire.unpack_points(data, 4, 10), [0, 9, 5, 1])
  with pytest.raises(ValueError, match='threshold 9, but the last one is 8'):
    wire.unpack_points(data, 4, 9)
  with pytest.raises(ValueError, match='bits after the end'):
    wire.unpack(data, (3,), 4)
  with pytest.raises(ValueError, match='rows of 3 bytes'):
    wire.unpack(data, (5,), 4)


def test_shares_are_below_the_modulus():
  scheme = schemes.OuterProductScheme(num_thresholds=4, num_servers=3)
  for value in (0, 2**31 - 2):
    data = wire.pack(np.array([value]), 31)
    assert wire.unpack_shares(scheme, data, (1,)) == [value]
  with pytest.raises(ValueError, match='not below 2147483647'):
    wire.unpack_shares(scheme, wire.pack(np.array([2**31 - 1]), 31), (1,))
  whole = schemes.ComparisonScheme(num_thresholds=4, value_bits=64)
  assert wire.unpack_shares(whole, b'\xff' * 8, (1,)) == [2**64 - 1]


def test_parameters_are_compared_as_text():
  params = parameters(lower=0.0, shape=(2, 5))
  assert public.from_bytes(params.to_bytes()) == params
  assert params.digest == hashlib.sha256(params.to_bytes()).digest()
  said = json.loads(params.to_bytes())
  differing = lambda **fields: params.differences(json.dumps(
      {**said, **fields}).encode())
  assert differing() == ()
  assert differing(lower=-0.0, root=1, more=3) == ('lower', 'more', 'root')
  assert differing(**{'x' * 50: 1}) == ('x' * 40,)
  assert params.differences(b'{}') == tuple(sorted(said))
  with pytest.raises(ValueError, match='that are not JSON$'):
    params.differences(b'{')
  with pytest.raises(ValueError, match='that are not a JSON object'):
    params.differences(b'[]')
  for data in (b'{}', b'[]', json.dumps({**said, 'more': 1}).encode()):
    with pytest.raises(ValueError, match='not the parameters of a study'):
      public.from_bytes(data)


def test_a_folder_keeps_what_is_stored_for_one_study(tmp_path):
  params = parameters()
  kept = storage.Storage(tmp_path, params)
  assert kept.dealt() is kept.noise() is kept.released() is None
  kept.keep(enrolment.entry(1, b'ab'))
  kept.write_dealt(b'keys')
  kept.write_noise('name', np.array([True, False]), np.array([[3, 4]]))
  kept.mark_released('name')
  kept.write_report({'used': 3})
  kept.close()
  with open(tmp_path / 'inbox.log', 'ab') as log:
    log.write(enrolment.entry(2, b'cd')[:-1])  # This entry is torn.
  again = storage.Storage(tmp_path, params)
  for _ in range(2):
    assert again.kept() == [(1, b'ab')]
  again.keep(enrolment.entry(3, b'e'))
  assert again.kept() == [(1, b'ab'), (3, b'e')]
  assert (again.dealt(), again.released()) == (b'keys', 'name')
  name, accepted, noise = again.noise()
  assert (name, accepted.tolist(), noise.tolist()) == (
      'name', [True, False], [[3, 4]])
  assert json.loads((tmp_path / 'report.json').read_text()) == {'used': 3}
  again.close()
  key = storage.enrolment_key(tmp_path)
  assert len(key) == 32 and storage.enrolment_key(tmp_path) == key
  with pytest.raises(ValueError, match='another study: num_owners differ'):
    storage.Storage(tmp_path, params.replaced(num_owners=12))


def test_what_a_full_disk_cuts_off_is_written_again_or_an_error(tmp_path):
  class Log(io.BytesIO):
    def write(self, data):
      if len(self.getvalue()) > 20:
        raise OSError('no space left')
      return super().write(data[:7])

  store = storage.Storage(tmp_path, parameters())
  store.close()
  store._inbox = Log()
  store.keep(b'sixteen letters.')
  assert store._inbox.getvalue() == b'sixteen letters.'
  with pytest.raises(OSError, match='no space'):
    store.keep(b'sixteen letters.')
