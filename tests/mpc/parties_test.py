"""Tests parties on threads over real TLS connections: answers and noise."""

import threading

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import costs
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from tests.mpc.studies import BINS
from tests.mpc.studies import exact
from tests.mpc.studies import LABELS
from tests.mpc.studies import parameters


@pytest.mark.every(3)
@pytest.mark.parametrize('kwargs', [
    dict(), dict(adjacency='add_or_remove_one', num_classes=2),
    dict(scheme='additive', num_servers=3, num_colluding=2, value_bits=20),
    dict(scheme='outer_product', num_servers=3)])
def test_counts_are_exact_before_noise_and_bytes_as_by_formula(
    make_study, kwargs):
  labels = LABELS if kwargs.get('num_classes') == 2 else None
  study = make_study(labels=labels, **kwargs)
  params, scheme = study.params, study.params.build_scheme()
  report = study.send()
  assert not any(report['refused'].values())
  expected = (exact(BINS)[np.newaxis] if labels is None else
              np.stack([exact(BINS[LABELS == c]) for c in (0, 1)]))
  whole, some = study.ask(), study.ask(np.array([7, 0, 4, 9, 2]))
  np.testing.assert_array_equal(whole.numbers, expected)
  np.testing.assert_array_equal(some.numbers, expected[:, [7, 0, 4, 9, 2]])
  # Only servers may know who took part where n is private.
  assert some.num_records == (13 if params.knows_total else None)
  assert not study.refused(0)

  for index, name in enumerate(params.servers):
    assert report['traffic'][name]['payload_sent']['owners'] == 13 * (
        enrolment.AROUND_BYTES + packing.num_bytes(scheme.bits(index)))
  per_server = costs.answering(scheme, 5) // params.num_servers
  values = 5 * params.num_classes * scheme.answer_bits
  for name in params.servers:
    traffic = some.traffic[name]
    assert traffic.sent[Kind.POINTS] == packing.num_bytes(per_server - values)
    assert traffic.received[Kind.SHARES] == packing.num_bytes(values)
    assert traffic.wire_received > traffic.received[Kind.SHARES] + 50


@pytest.mark.every(2)
@pytest.mark.parametrize('kwargs', [
    dict(), dict(num_classes=2), dict(scheme='outer_product', num_servers=3)])
def test_counts_of_a_tree_are_exact_before_noise(make_study, kwargs):
  labels = LABELS if kwargs.get('num_classes') == 2 else None
  study = make_study(shape=(2, 3, 2), labels=labels, **kwargs)
  study.send()
  numbers = study.ask().numbers
  for label, line in enumerate(numbers):
    bins = BINS if labels is None else BINS[LABELS == label]
    counts = np.append(np.bincount(bins, minlength=10), [0, 0])
    np.testing.assert_array_equal(line, np.concatenate([
        counts.reshape(2, 6).sum(1), counts.reshape(6, 2).sum(1)[:5],
        counts[:10]]))
  with pytest.raises(ValueError, match='points of a tree'):
    study.ask(np.array([1]))
  link = study.call(0, 'client')
  links.greet(link, study.params)
  link.send(Kind.ASK, b'2')
  with pytest.raises(Fault, match='a tree answers all at once'):
    link.expect(Kind.STATUS)
  link.close()


def test_noise_is_drawn_once_and_survives_restarts(make_study):
  study = make_study(noise=None)
  study.send()
  study.deal()
  points = np.array([2, 5])
  some, whole = study.ask(points).numbers, study.ask().numbers
  np.testing.assert_array_equal(whole[:, points], some)
  assert whole[0, -1] == 13  # Here n is public, without noise.
  # All ten thresholds lack noise with chance below 10^-9 at this scale.
  assert (whole[0] != exact(BINS)).any()
  study.restart()
  np.testing.assert_array_equal(study.ask().numbers, whole)
  assert not study.refused(0) and not study.refused(1)

  # Noise that may have been released is not drawn anew.
  (study.folder / 'server1' / 'noise.npz').unlink()
  study.restart()
  for _ in range(2):
    with pytest.raises(Fault, match='server1: has lost noise that may have '
                       'been released'):
      study.ask()


def test_noise_that_nobody_has_seen_is_drawn_anew(make_study):
  study = make_study(noise=None)
  study.send()
  study.deal()
  study.ask()
  # This is as if server 1 had been killed before its noise was on disk.
  for name in ('server0', 'server1'):
    (study.folder / name / 'told').unlink()
  (study.folder / 'server1' / 'noise.npz').unlink()
  study.restart()
  assert study.ask().numbers[0, -1] == 13
  released = {(study.folder / name / 'told').read_text()
              for name in ('server0', 'server1')}
  assert len(released) == 1


class _Mesh:
  """Links between servers that run on threads of this process."""

  def __init__(self, boxes, name):
    self._boxes, self._name = boxes, name

  def exchange(self, kind, mine):
    del kind
    others = [name for name in self._boxes['names'] if name != self._name]
    for peer in others:
      self._boxes[self._name, peer] = mine if isinstance(
          mine, bytes) else mine[peer]
    self._boxes['barrier'].wait()
    received = {peer: self._boxes[peer, self._name] for peer in others}
    self._boxes['barrier'].wait()
    return received


def _sum_of_laplace(parts):
  """Returns values, and probabilities of sums of `parts` Laplace draws."""
  values = np.arange(-200, 201)
  probs = np.exp(-np.abs(values) / 2.0)
  probs /= probs.sum()
  total = probs
  for _ in range(parts - 1):
    total = np.convolve(total, probs, 'same')
  return values, total


@pytest.mark.parametrize('noise, num_servers, shape, parts', [
    ('joint', 2, (), 2), ('contributions', 2, (), 4),
    ('contributions', 3, (512,), 3), ('joint', 2, (512,), 1)])
def test_noise_has_the_law_of_the_curator(noise, num_servers, shape, parts):
  # Counts of a tree have the noise of a node; neighbouring rows of dyadic noise
  # differ by two nodes. Each is 512 independent sums of `parts` discrete
  # Laplace numbers of scale 2.
  params = parameters(
      noise=noise, num_thresholds=512 if shape else 1024, shape=shape,
      adjacency='add_or_remove_one', sensitivity=2, num_servers=num_servers,
      num_colluding=num_servers - 1,
      scheme='comparison' if num_servers == 2 else 'additive')
  stream = lambda label: prg.Stream(bytes(31) + b'7', label=label)
  dealt = noising.deal(params, stream('deal')) if noise == 'joint' else [
      None] * num_servers
  boxes = {'names': params.servers, 'barrier': threading.Barrier(num_servers)}
  shares = [None] * num_servers

  def run(index):
    shares[index] = noising.draw(
        index, params, _Mesh(boxes, params.servers[index]), bytes(32),
        dealt[index], source=stream(f's{index}'))

  threads = [threading.Thread(target=run, args=(j,))
             for j in range(num_servers)]
  for one in threads:
    one.start()
  for one in threads:
    one.join()
  (drawn,) = params.build_scheme().combine(dict(enumerate(shares)))
  steps = drawn if shape else drawn[1::2] - drawn[::2]
  values, total = _sum_of_laplace(parts)
  edges = np.unique(np.searchsorted(np.cumsum(total), np.arange(1, 8) / 8))
  expected = 512 * np.diff(np.cumsum(total)[edges], prepend=0.0, append=1.0)
  observed = np.bincount(np.searchsorted(values[edges], steps),
                         minlength=expected.size)
  # One seed in a thousand would fail; this one does not.
  assert ((observed - expected)**2 / expected).sum() < stats.chi2.isf(
      1e-3, expected.size - 1)


@pytest.mark.slow
def test_no_answer_without_a_dealer_or_with_few_owners(make_study):
  study = make_study(noise=None)
  study.send()
  with pytest.raises(Fault, match='dealer: has sent no keys'):
    study.ask()
  study.deal()
  # This is as if the dealer had died between the servers and dealt again.
  (study.folder / 'server1' / 'dealt.bin').write_bytes(
      noising.deal(study.params, prg.system)[1])
  with pytest.raises(Fault, match='dealer: .* do not belong together'):
    study.ask()
  study.deal()
  assert study.ask().num_records == 13
  study = make_study(min_owners=13)
  study.send(change=lambda owner, entry: b'' if owner == 3 else entry)
  with pytest.raises(Fault, match='only 12 owners'):
    study.ask()


@pytest.mark.parametrize('kwargs', [
    dict(), dict(scheme='additive', num_servers=3, num_colluding=2),
    dict(scheme='outer_product', num_servers=3)])
def test_nobody_is_a_number_of_owners(make_study, kwargs):
  # Refusing would tell clients that there was nobody.
  study = make_study(adjacency='add_or_remove_one', **kwargs)
  answer = study.ask()
  assert answer.num_records is None and not answer.numbers.any()


@pytest.mark.parametrize('kwargs, message', [
    (dict(session='x'), 'session'), (dict(scheme='fss'), 'scheme'),
    (dict(num_servers=3), '2'), (dict(num_colluding=2), 'num_colluding must be 1'),
    (dict(epsilon=0.0), 'epsilon'), (dict(adjacency='any'), 'adjacency'),
    (dict(lower=1.0), 'lower'), (dict(num_owners=0), 'num_owners'),
    (dict(noise='none'), 'noise'),
    (dict(scheme='additive', noise='joint'), 'joint noise'),
    (dict(shape=(3, 3)), 'too few for'),
    (dict(adjacency='add_or_remove_one', min_owners=2), 'would reveal')])
def test_bad_parameters_are_refused(kwargs, message):
  with pytest.raises(ValueError, match=message):
    parameters(**kwargs)


def test_studies_have_folders_and_secrets_of_their_own(make_study):
  study = make_study()
  for name in ('server0', 'owners0', 'client'):
    assert (study.folder / name).stat().st_mode & 0o77 == 0
    assert (study.folder / name / 'key.pem').stat().st_mode & 0o77 == 0
  with pytest.raises(ValueError, match='not empty'):
    setup.create(study.folder, study.params, BINS)
  with pytest.raises(ValueError, match='points must be'):
    study.ask(np.array([10]))
