"""Tests generators against the published vectors of their ciphers."""

import numpy as np
import pytest

from dpjax.mpc import packing
from dpjax.mpc import prg


def _block(text):
  return np.frombuffer(bytes.fromhex(text), np.uint64)


def test_blocks_are_those_of_fips_197():
  key = bytes(range(16))
  plain = np.stack([_block('00112233445566778899aabbccddeeff'),
                    _block('00' * 16)])
  assert prg.aes_blocks(key, plain)[0].tobytes().hex() == (
      '69c4e0d86a7b0430d8cdb78070b4c55a')


def test_streams_are_those_of_rfc_8439():
  """Streams match RFC 8439, section 2.3.2 (second block) and appendix A.1."""
  nonce = bytes.fromhex('000000090000004a00000000').decode()
  stream = prg.Stream(bytes(range(32)), label=nonce)
  assert stream(128)[64:].hex().startswith(
      '10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e')
  assert prg.Stream(bytes(32))(16).hex() == '76b8e0ada0f13d90405d6ae55386bd28'


def test_a_stream_is_one_however_it_is_read_and_one_for_each_key_and_label():
  key = bytes(range(32))
  first = prg.Stream(key, label='noise')
  assert first(5) + first(70) == prg.Stream(key, label='noise')(75)
  others = [prg.Stream(key, label='coin')(16), prg.Stream(bytes(32))(16)]
  assert prg.Stream(key, label='noise')(16) not in others
  with pytest.raises(ValueError, match='key of 32 bytes'):
    prg.Stream(bytes(16))


def test_expansion_is_aes_of_the_seed_at_a_place():
  seeds = prg.words(prg.Stream(bytes(32)), (3, 2))
  places = np.arange(3)
  got = prg.expand(seeds, places)
  public = bytes.fromhex('243f6a8885a308d313198a2e03707344')
  for row, place in enumerate(places):
    placed = seeds[row].copy()
    placed[0] ^= np.uint64(place)
    np.testing.assert_array_equal(
        got[row], prg.aes_blocks(public, placed) ^ placed)
    np.testing.assert_array_equal(got[row], prg.expand(seeds, int(place))[row])


@pytest.mark.parametrize('sizes', [(8, 16, 64), (64, 31, 2), (1, 33, 7)])
def test_messages_are_read_as_they_were_written(sizes):
  drawn = prg.words(prg.Stream(bytes(32)), (len(sizes), 5, 3))
  fields = [(values >> np.uint64(64 - bits), bits)
            for values, bits in zip(drawn, sizes, strict=True)]
  packed = packing.pack(fields)
  assert packed.shape == (5, packing.num_bytes(3 * sum(sizes)))
  read, bad = packing.unpack(packed, [(3, bits) for bits in sizes])
  for (values, _), again in zip(fields, read, strict=True):
    np.testing.assert_array_equal(again, values)
  assert not bad.any()
  if 3 * sum(sizes) % 8:
    packed[2, -1] |= 1
    assert np.flatnonzero(packing.unpack(
        packed, [(3, bits) for bits in sizes])[1]).tolist() == [2]
