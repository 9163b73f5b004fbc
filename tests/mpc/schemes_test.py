"""Tests schemes: exact ranks, stated message lengths, single views."""

import itertools

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import prg
from dpjax.mpc import scheme as module
from dpjax.mpc import schemes
from dpjax.mpc import shamir

_SERVERS = {'comparison': 2, 'additive': 3, 'outer_product': 4}


def _scheme(name, num_thresholds, num_classes=1):
  return schemes.SCHEMES[name](num_thresholds=num_thresholds,
                               num_servers=_SERVERS[name],
                               num_classes=num_classes)


def _records(num_thresholds, num_records=300):
  rng = np.random.default_rng(num_thresholds)
  return (rng.integers(0, num_thresholds, num_records),
          rng.integers(0, 2, num_records))


def _source():
  return prg.Stream(bytes(32))


@pytest.mark.parametrize('num_classes', [1, 2])
@pytest.mark.parametrize('num_thresholds', [2, 5, 64, 1024])
@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_answers_add_up_to_ranks_and_noise(
    name, num_thresholds, num_classes, monkeypatch):
  monkeypatch.setattr(module, '_NUMBERS', 2**13)  # several chunks of owners
  scheme = _scheme(name, num_thresholds, num_classes)
  bins, labels = _records(num_thresholds)
  classes = [labels == 0, labels == 1] if num_classes == 2 else [labels >= 0]
  ranks = np.stack([np.cumsum(np.bincount(bins[chosen],
                                          minlength=num_thresholds))
                    for chosen in classes])
  sent = scheme.shares(bins, source=_source(),
                       labels=labels if num_classes == 2 else None)
  noise = np.arange(num_thresholds) * 7 - 150
  shared = scheme.share_values(noise, _source())
  answers = {server: scheme.add(scheme.aggregate(server, sent[server]),
                                shared[server])
             for server in range(scheme.num_servers)}
  np.testing.assert_array_equal(scheme.combine(answers), ranks + noise)
  points = np.array([num_thresholds - 1, 0, 1])
  some = {server: scheme.aggregate(server, sent[server], points)
          for server in answers}
  np.testing.assert_array_equal(scheme.combine(some), ranks[:, points])
  for server, payloads in enumerate(sent):
    assert payloads.shape[1] == -(-scheme.bits(server) // 8)


def test_messages_have_the_lengths_of_the_formulas():
  for num_thresholds, key, columns in ((1024, 1780, 64), (2**15, 2590, 363)):
    bits = {name: _scheme(name, num_thresholds).bits_per_owner
            for name in schemes.SCHEMES}
    assert bits == {'comparison': 2 * key,
                    'additive': 32 * num_thresholds + 2 * 128,
                    'outer_product': 4 * 31 * columns}
  with_labels = _scheme('comparison', 1024, 2)
  assert with_labels.bits_per_owner == 2 * (2 * 1780 + 32)


@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_nobody_at_all_has_ranks_of_zero(name):
  scheme = _scheme(name, 5, 2)
  none = np.zeros(0, int)
  sent = scheme.shares(none, source=_source(), labels=none)
  answers = {server: scheme.aggregate(server, payloads)
             for server, payloads in enumerate(sent)}
  assert scheme.combine(answers).tolist() == [[0] * 5] * 2
  assert not any(scheme.faults(server, payloads).size
                 for server, payloads in enumerate(sent))


def test_enough_servers_answer_and_a_wrong_one_is_found():
  scheme = schemes.OuterProductScheme(num_thresholds=9, num_servers=5,
                                      num_colluding=1)
  bins, _ = _records(9)
  ranks = np.cumsum(np.bincount(bins, minlength=9))[np.newaxis]
  sent = scheme.shares(bins, source=_source())
  answers = {server: scheme.aggregate(server, sent[server])
             for server in range(5)}
  for chosen in itertools.combinations(range(5), 3):
    np.testing.assert_array_equal(
        scheme.combine({server: answers[server] for server in chosen}), ranks)
  with pytest.raises(ValueError, match='3 servers have to answer'):
    scheme.combine({0: answers[0], 4: answers[4]})
  answers[3] = scheme.add(answers[3], np.uint64(1))
  with pytest.raises(ValueError, match='party 3'):
    scheme.combine(answers)


@pytest.mark.parametrize('num_classes', [1, 2])
@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_the_message_to_one_server_does_not_depend_on_the_record(
    name, num_classes):
  """One server's message has fair bits, whichever extreme record is sent.

  Each test fails by chance once in 10^6. The prime field's bits are fair to one
  part in 10^9.
  """
  scheme = _scheme(name, 16, num_classes)
  sent = [scheme.shares(np.full(4000, bin_), source=prg.Stream(bytes(32)),
                        labels=np.full(4000, label) if num_classes == 2
                        else None)
          for bin_, label in ((0, 0), (15, 1))]
  for messages, server in itertools.product(sent, range(scheme.num_servers)):
    bits = np.unpackbits(messages[server], axis=1)[:, :scheme.bits(server)]
    squares = (bits.mean(0) - 0.5)**2 * 4 * len(bits)
    assert stats.chi2.sf(squares.sum(), len(squares)) > 1e-6


@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_shares_of_noise_are_random_enough_to_hide_answers(name):
  """Noise shares look uniform, so they hide answers of a higher degree too."""
  scheme = _scheme(name, 16)
  shares = scheme.share_values(np.zeros(2000, int), _source())
  top = np.uint64(scheme.answer_bits - 4)
  for share in shares:
    counts = np.bincount((share >> top).astype(int), minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-6
  if name == 'outer_product':
    with pytest.raises(ValueError, match='do not agree'):
      shamir.combine(shares, range(4), degree=1)
  assert not scheme.combine(dict(enumerate(shares))).any()


@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_messages_that_nobody_sends_are_found_by_row(name, monkeypatch):
  scheme = schemes.SCHEMES[name](num_thresholds=5, num_classes=2, **(
      {} if name == 'outer_product' else {'value_bits': 31}),
      num_servers=_SERVERS[name])
  last = scheme.num_servers - 1
  payloads = scheme.shares(np.array([0, 4, 2]), source=_source(),
                           labels=np.array([0, 1, 1]))[last]
  monkeypatch.setattr(module, '_NUMBERS', 1)  # owners one by one
  assert not scheme.faults(last, payloads).any()
  assert scheme.bits(last) % 8
  wrong = payloads.copy()
  wrong[1, -1] |= 1
  assert scheme.faults(last, wrong).tolist() == [False, True, False]
  with pytest.raises(ValueError, match='message 1 '):
    scheme.aggregate(last, wrong)
  with pytest.raises(ValueError, match='rows of'):
    scheme.aggregate(last, payloads[:, :-1])
  if name == 'outer_product':
    wrong = payloads.copy()
    wrong[2, :4] = 255  # The prime is 2^31 - 1.
    assert scheme.faults(last, wrong).tolist() == [False, False, True]


@pytest.mark.every(1)
@pytest.mark.parametrize('name', schemes.SCHEMES)
def test_sizes_out_of_range_are_refused(name):
  build = lambda **kwargs: schemes.SCHEMES[name](**{
      'num_thresholds': 8, 'num_servers': _SERVERS[name], **kwargs})
  assert build(num_thresholds=2).num_thresholds == 2
  with pytest.raises(ValueError, match='num_thresholds must be .* >= 2'):
    build(num_thresholds=1)
  for num_classes in (0, 3):
    with pytest.raises(ValueError, match='num_classes must be 1 or 2'):
      build(num_classes=num_classes)
  with pytest.raises(ValueError, match='servers'):
    build(num_servers=1)
  if name == 'outer_product':
    with pytest.raises(ValueError, match='num_colluding must be'):
      build(num_colluding=0)
    assert build(num_servers=5, num_colluding=2).needed == 5
  else:
    assert build(value_bits=64).modulus == 2**64
    for bits in (1, 65):
      with pytest.raises(ValueError, match='value_bits must be'):
        build(value_bits=bits)


def test_bad_settings_and_records_are_refused():
  scheme = _scheme('comparison', 8)
  with pytest.raises(ValueError, match='bins must lie between 0 and 7'):
    scheme.shares(np.array([8]), source=_source())
  with pytest.raises(ValueError, match='vector of whole numbers'):
    scheme.shares(np.array([1.0]), source=_source())
  with pytest.raises(ValueError, match='labels must be given'):
    scheme.shares(np.array([1]), source=_source(), labels=np.array([1]))
  two = _scheme('comparison', 8, 2)
  for labels in ([2], [-1]):
    with pytest.raises(ValueError, match='labels must lie between 0 and 1'):
      two.shares(np.array([1]), source=_source(), labels=np.array(labels))
  with pytest.raises(ValueError, match='points must lie between 0 and 7'):
    two.aggregate(0, np.zeros((0, 1), np.uint8), np.array([8]))
  with pytest.raises(ValueError, match='for 2 servers'):
    schemes.ComparisonScheme(num_thresholds=8, num_servers=3)
  with pytest.raises(ValueError, match='num_servers'):
    schemes.OuterProductScheme(num_thresholds=8, num_servers=4,
                               num_colluding=2)
  with pytest.raises(ValueError, match='num_classes'):
    _scheme('additive', 8, 3)
