"""Parties on threads, over real TLS connections: answers, faults, restarts."""

import contextlib
import os
import secrets
import socket
import ssl
import threading
import time

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import costs
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import client
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import inbox
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import server
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.channel import Fault, Kind
from dpjax.mpc.parties.parameters import Parameters

_BINS = np.array([0, 3, 3, 7, 9, 1, 3, 9, 8, 0, 2, 9, 4])
_LABELS = np.arange(13) % 2


def _parameters(**kwargs):
  return Parameters(**dict(
      session=secrets.token_hex(16), scheme='comparison', num_servers=2,
      num_colluding=1, num_classes=1, num_thresholds=10, lower=0.0, upper=1.0,
      grid='uniform', epsilon=1.0, adjacency='replace_one', sensitivity=4,
      root=True, shape=(), noise='contributions' if 'scheme' in kwargs else 'joint',
      value_bits=32, num_owners=13, min_owners=0) | kwargs)


def _no_noise(index, told, mesh, toss, dealt):
  """The hook of tests: sharings of zero, so that counts are exact."""
  del toss, dealt
  return noising.reshare(index, told, mesh, np.zeros(
      (told.num_classes, noising.num_told(told)), np.int64))


class _Study:
  """A study in a folder, and its servers on threads."""

  def __init__(self, folder, told, *, noise=_no_noise, timeout=5.0,
               labels=None, server_parameters=()):
    self.folder, self.told, self.timeout = folder, told, timeout
    self.noise = noise
    setup.create(folder, told, np.resize(_BINS, told.num_owners), labels)
    said = dict(server_parameters)
    self.servers = [self.start(j, said.get(j, told))
                    for j in range(told.num_servers)]

  def start(self, index, told=None):
    name = self.told.servers[index]
    made = server.Server(
        self.folder / name, self.folder / 'addresses', index,
        told or self.told, timeout=self.timeout, noise=self.noise)
    made.start()
    return made

  def restart(self):
    for one in self.servers:
      one.stop()
    self.servers = [self.start(j) for j in range(self.told.num_servers)]

  def stop(self):
    for one in self.servers:
      one.stop()

  @property
  def _places(self):
    return dict(addresses=self.folder / 'addresses', timeout=self.timeout)

  def send(self, **kwargs):
    held = setup.owners(self.folder, 'owners0')
    return owners.send(
        held['bins'], list(held['tokens']), labels=held.get('labels'),
        **dict(first_owner=0, parameters=self.told, name='owners0',
               folder=self.folder / 'owners0', **self._places) | kwargs)

  def deal(self):
    return owners.deal(self.told, folder=self.folder / 'dealer',
                       **self._places)

  def ask(self, points=None, told=None):
    return client.ask(told or self.told, points,
                      folder=self.folder / 'client', **self._places)

  def call(self, index, name, folder=None):
    return channel.call(
        self.servers[index].address,
        certificates.context(folder or self.folder / name, server=False),
        peer=self.told.servers[index], name=name, session=self.told.session,
        timeout=self.timeout)

  def refused(self, index):
    return {(one['party'], one['reason']): one['times']
            for one in self.servers[index].refusals.to_json()}


def _eventually(holds):
  """A server writes down a refusal after it has told of it."""
  deadline = time.monotonic() + 5
  while not holds():
    assert time.monotonic() < deadline
    time.sleep(.01)


@pytest.fixture
def study(tmp_path):
  """Returns a function that makes a study; its servers end with the test."""
  with contextlib.ExitStack() as stack:
    def make(*, servers=(), noise=_no_noise, timeout=5.0, labels=None,
             **kwargs):
      made = _Study(tmp_path / f'study{len(os.listdir(tmp_path))}',
                    _parameters(**kwargs), noise=noise, timeout=timeout,
                    labels=labels, server_parameters=servers)
      stack.callback(made.stop)
      return made
    yield make


def _exact(bins, num_thresholds=10):
  return np.cumsum(np.bincount(bins, minlength=num_thresholds))


@pytest.mark.parametrize('kwargs', [
    dict(), dict(adjacency='add_or_remove_one', num_classes=2),
    dict(scheme='additive', num_servers=3, num_colluding=2, value_bits=20),
    dict(scheme='outer_product', num_servers=3)])
def test_counts_are_exact_before_noise_and_bytes_as_by_formula(study, kwargs):
  labels = _LABELS if kwargs.get('num_classes') == 2 else None
  made = study(labels=labels, **kwargs)
  told, scheme = made.told, made.told.build_scheme()
  report = made.send()
  assert not any(report['refused'].values())
  expected = (_exact(_BINS)[np.newaxis] if labels is None else
              np.stack([_exact(_BINS[_LABELS == c]) for c in (0, 1)]))
  whole, some = made.ask(), made.ask(np.array([7, 0, 4, 9, 2]))
  np.testing.assert_array_equal(whole.numbers, expected)
  np.testing.assert_array_equal(some.numbers, expected[:, [7, 0, 4, 9, 2]])
  # Who took part is for the servers where n is not public.
  assert some.num_records == (13 if told.knows_total else None)
  assert not made.refused(0)

  for index, name in enumerate(told.servers):
    assert report['traffic'][name]['payload_sent']['owners'] == 13 * (
        enrolment.AROUND_BYTES + packing.num_bytes(scheme.bits(index)))
  per_server = costs.answering(scheme, 5) // told.num_servers
  values = 5 * told.num_classes * scheme.answer_bits
  for name in told.servers:
    traffic = some.traffic[name]
    assert traffic.sent[Kind.POINTS] == packing.num_bytes(per_server - values)
    assert traffic.received[Kind.SHARES] == packing.num_bytes(values)
    assert traffic.wire_received > traffic.received[Kind.SHARES] + 50


@pytest.mark.parametrize('kwargs', [
    dict(), dict(num_classes=2), dict(scheme='outer_product', num_servers=3)])
def test_counts_of_a_tree_are_exact_before_noise(study, kwargs):
  labels = _LABELS if kwargs.get('num_classes') == 2 else None
  made = study(shape=(2, 3, 2), labels=labels, **kwargs)
  made.send()
  found = made.ask().numbers
  for label, line in enumerate(found):
    bins = _BINS if labels is None else _BINS[_LABELS == label]
    counts = np.append(np.bincount(bins, minlength=10), [0, 0])
    np.testing.assert_array_equal(line, np.concatenate([
        counts.reshape(2, 6).sum(1), counts.reshape(6, 2).sum(1)[:5],
        counts[:10]]))
  with pytest.raises(ValueError, match='points of a tree'):
    made.ask(np.array([1]))
  link = made.call(0, 'client')
  links.greet(link, made.told)
  link.send(Kind.ASK, b'2')
  with pytest.raises(Fault, match='asked for thresholds of a tree'):
    link.expect(Kind.STATUS)
  link.close()


def test_noise_is_drawn_once_and_survives_restarts(study):
  made = study(noise=None)
  made.send()
  made.deal()
  points = np.array([2, 5])
  some, whole = made.ask(points).numbers, made.ask().numbers
  np.testing.assert_array_equal(whole[:, points], some)
  assert whole[0, -1] == 13  # n is public, and has no noise
  # All of ten thresholds without noise: less than one in 10^9 at this scale.
  assert (whole[0] != _exact(_BINS)).any()
  made.restart()
  np.testing.assert_array_equal(made.ask().numbers, whole)
  assert not made.refused(0) and not made.refused(1)

  # Noise that may have been told is not drawn anew.
  (made.folder / 'server1' / 'noise.npz').unlink()
  made.restart()
  for _ in range(2):
    with pytest.raises(Fault, match='server1: has lost noise that may have '
                       'been told'):
      made.ask()


def test_noise_that_nobody_has_seen_is_drawn_anew(study):
  made = study(noise=None)
  made.send()
  made.deal()
  made.ask()
  # As if server 1 had been killed before its noise was on disk.
  for name in ('server0', 'server1'):
    (made.folder / name / 'told').unlink()
  (made.folder / 'server1' / 'noise.npz').unlink()
  made.restart()
  assert made.ask().numbers[0, -1] == 13
  told = {(made.folder / name / 'told').read_text()
          for name in ('server0', 'server1')}
  assert len(told) == 1


class _Mesh:
  """Links of servers on threads of this process."""

  def __init__(self, boxes, name):
    self._boxes, self._name = boxes, name

  def exchange(self, kind, mine):
    del kind
    others = [name for name in self._boxes['names'] if name != self._name]
    for peer in others:
      self._boxes[self._name, peer] = mine if isinstance(
          mine, bytes) else mine[peer]
    self._boxes['barrier'].wait()
    found = {peer: self._boxes[peer, self._name] for peer in others}
    self._boxes['barrier'].wait()
    return found


@pytest.mark.parametrize('noise, num_servers, shape, parts', [
    ('joint', 2, (), 2), ('contributions', 2, (), 4),
    ('contributions', 3, (512,), 3), ('joint', 2, (512,), 1)])
def test_noise_has_the_law_of_the_curator(noise, num_servers, shape, parts):
  # Counts of a tree have the noise of a node; neighbouring rows of dyadic noise
  # differ by two nodes. Each is 512 independent sums of `parts` discrete
  # Laplace numbers of scale 2.
  told = _parameters(
      noise=noise, num_thresholds=512 if shape else 1024, shape=shape, adjacency='add_or_remove_one',
      sensitivity=2, num_servers=num_servers, num_colluding=num_servers - 1,
      scheme='comparison' if num_servers == 2 else 'additive')
  stream = lambda label: prg.Stream(bytes(31) + b'7', label=label)
  dealt = noising.deal(told, stream('deal')) if noise == 'joint' else [
      None] * num_servers
  boxes = {'names': told.servers, 'barrier': threading.Barrier(num_servers)}
  shares = [None] * num_servers

  def run(index):
    shares[index] = noising.draw(
        index, told, _Mesh(boxes, told.servers[index]), bytes(32),
        dealt[index], source=stream(f's{index}'))

  threads = [threading.Thread(target=run, args=(j,))
             for j in range(num_servers)]
  for one in threads:
    one.start()
  for one in threads:
    one.join()
  (drawn,) = told.build_scheme().combine(dict(enumerate(shares)))
  steps = drawn if shape else drawn[1::2] - drawn[::2]
  values = np.arange(-200, 201)
  law = np.exp(-np.abs(values) / 2.0)
  law /= law.sum()
  total = law
  for _ in range(parts - 1):
    total = np.convolve(total, law, 'same')
  edges = np.unique(np.searchsorted(np.cumsum(total), np.arange(1, 8) / 8))
  expected = 512 * np.diff(np.cumsum(total)[edges], prepend=0.0, append=1.0)
  observed = np.bincount(np.searchsorted(values[edges], steps),
                         minlength=expected.size)
  # One seed in a thousand would fail; this one does not.
  assert ((observed - expected)**2 / expected).sum() < stats.chi2.isf(
      1e-3, expected.size - 1)


def _sealed(made, owner, index=0, **kwargs):
  """A good entry of an owner; `kwargs` make it less so."""
  held = setup.owners(made.folder, 'owners0')
  scheme = made.told.build_scheme()
  message = scheme.shares(np.array([_BINS[owner]]), source=prg.system)[index]
  named = dict(owner=owner, digest=made.told.digest,
               server=made.told.servers[index]) | kwargs
  return enrolment.entry(owner, enrolment.seal(
      held['tokens'][index, owner].tobytes(),
      bytes(8) + kwargs.get('payload', message.tobytes()),
      **{k: v for k, v in named.items() if k != 'payload'}))


def test_bad_messages_are_refused_for_their_owner_alone(study):
  made = study()
  rng = np.random.default_rng(5)
  spoil = {
      0: lambda entry: 2 * entry,
      1: lambda entry: enrolment.entry(1, entry[8:-1]),
      2: lambda entry: entry[:40] + bytes([entry[40] ^ 4]) + entry[41:],
      3: lambda entry: enrolment.entry(4, entry[8:]),
      5: lambda entry: enrolment.entry(5, rng.bytes(len(entry) - 8)),
      6: lambda entry: enrolment.entry(999, entry[8:]) + entry,
      # For the other server, of another study, with a bit too many.
      7: lambda entry: _sealed(made, 7, server='server9'),
      8: lambda entry: _sealed(made, 8, digest=bytes(32)),
      9: lambda entry: _sealed(made, 9, payload=b'\xff' * 223)}
  seal, length = ('its seal does not hold for this server and session',
                  inbox.LENGTH)
  report = made.send(change=lambda owner, entry: spoil.get(
      owner, lambda entry: entry)(entry))
  # ceil(1780 / 8) is not the length here: 10 thresholds, 4 bits.
  reasons = dict(report['refused']['server0'][i] for i in range(
      len(report['refused']['server0'])))
  assert reasons == {0: inbox.REPEATED, 1: length, 2: seal, 4: seal, 5: seal,
                     999: inbox.UNKNOWN, 7: seal, 8: seal, 9: length}
  assert made.refused(1)['owner 8', seal] == 1
  kept = [0, 4, 6, 10, 11, 12]
  answer = made.ask()
  assert answer.num_records == len(kept)
  np.testing.assert_array_equal(answer.numbers[0], _exact(_BINS[kept]))


def test_malformed_messages_under_a_good_seal_are_refused(study):
  made = study(scheme='outer_product', num_servers=3)
  size = packing.num_bytes(made.told.build_scheme().bits(0))
  link = made.call(0, 'owners0')
  links.greet(link, made.told)
  link.send(Kind.OWNERS, _sealed(made, 3, payload=b'\xff' * size) +
            _sealed(made, 4))
  assert link.expect(Kind.RECEIPT).startswith(b'{"accepted": 1')
  link.close()
  assert ('owner 3', inbox.MALFORMED) in made.refused(0)


def test_an_owner_of_one_server_only_does_not_count(study):
  made = study()
  flip = lambda owner, entry: entry[:-1] + bytes([entry[-1] ^ 1])
  both = iter(range(26))
  # The second half of the calls is for the second server.
  made.send(change=lambda owner, entry: flip(owner, entry)
            if next(both) >= 13 and owner in (2, 5) else entry)
  answer = made.ask()
  np.testing.assert_array_equal(
      answer.numbers[0], _exact(np.delete(_BINS, [2, 5])))
  assert made.refused(0) == {('owner 2', inbox.LOST): 1,
                             ('owner 5', inbox.LOST): 1}


@pytest.mark.parametrize('change, reason', [
    (lambda h, p: b'X' + h[1:] + p, 'is no frame'),
    (lambda h, p: h[:6] + bytes(16) + h[22:] + p, 'another session'),
    (lambda h, p: h[:22] + b'client'.ljust(16, b'\0') + h[38:] + p,
     'in the name of another'),
    (lambda h, p: 2 * (h + p), 'frame 1 where 2 was due'),
    (lambda h, p: h[:46] + b'\xff' * 4 + p, 'announced a payload'),
    (lambda h, p: h[:5] + bytes([Kind.ASK]) + h[6:] + p, 'was due'),
    (lambda h, p: (h + p)[:-1], 'closed the connection'),
    (lambda h, p: h[:-4] + (len(p) - 1).to_bytes(4) + p[:-1],
     'ends within the message of owner 0')])
def test_bad_frames_end_a_connection_and_nothing_else(study, change, reason):
  made = study()
  link = made.call(0, 'owners0')
  links.greet(link, made.told)
  payload = _sealed(made, 0)
  header = channel._HEADER.pack(b'dpjx', 1, Kind.OWNERS,
                                bytes.fromhex(made.told.session), b'owners0',
                                1, len(payload))
  link._run(link._tls.write, change(header, payload))
  if reason == 'closed the connection':
    link.close()
  else:
    with contextlib.suppress(Fault):
      while True:
        link.expect(Kind.RECEIPT)
    link.close()
  made.send()
  answer = made.ask()
  # What came before the bad frame counts: it is not of the shares that follow.
  first = ('owner 0', inbox.MIXED) in made.refused(0)
  assert first == (reason == 'frame 1 where 2 was due')
  np.testing.assert_array_equal(answer.numbers[0], _exact(_BINS[first:]))
  _eventually(lambda: any(party == 'owners0' and reason in why
                          for party, why in made.refused(0)))


def test_random_bytes_end_a_connection_and_nothing_else(study):
  made, rng = study(), np.random.default_rng(9)
  for trial in range(60):
    if trial % 2:  # before TLS
      with socket.create_connection(made.servers[0].address) as raw:
        raw.sendall(rng.bytes(int(rng.integers(1, 300))))
    else:          # as owners, after the greeting or instead of it
      link = made.call(0, 'owners0')
      if trial % 4:
        links.greet(link, made.told)
      with contextlib.suppress(Fault):
        link._run(link._tls.write, rng.bytes(int(rng.integers(50, 900))))
        link.expect(Kind.RECEIPT)
      link.close()
  made.send()
  np.testing.assert_array_equal(made.ask().numbers[0], _exact(_BINS))
  _eventually(lambda: {party for party, _ in made.refused(0)} == {
      'owners0', 'a stranger at 127.0.0.1'})


def test_who_has_no_certificate_of_this_study_is_a_stranger(study):
  made, other = study(), study()
  with pytest.raises(Fault, match='server0: TLS: self-signed'):
    made.call(0, 'client', folder=other.folder / 'client')
  # Without any, or with one of a party that a server is not called by.
  bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  bare.load_verify_locations(made.folder / 'client' / 'authority.pem')
  link = channel.Channel(
      socket.create_connection(made.servers[0].address), bare, name='client',
      session=made.told.session, timeout=5.0, server_name='server0')
  with pytest.raises(Fault):
    links.greet(link, made.told)
  _eventually(lambda: ('a stranger at 127.0.0.1', 'TLS: peer did not return a '
                       'certificate') in made.refused(0))
  made.servers[1].stop()
  link = made.call(0, 'server0')
  links.greet(link, made.told)
  with pytest.raises(Fault, match='closed'):
    link.expect(Kind.STATUS)
  link.close()
  _eventually(lambda: ('server0', 'has no business with this server')
              in made.refused(0))
  # A server that shows another's certificate.
  (made.folder / 'addresses' / 'server1').write_text(
      (made.folder / 'addresses' / 'server0').read_text())
  with pytest.raises(Fault, match='server1: TLS: hostname mismatch'):
    made.ask()


def test_other_parameters_are_refused_by_name(study):
  made = study()
  wrong = made.told.replaced(epsilon=2.0, min_owners=3)
  with pytest.raises(Fault, match='server0: does not agree on '
                     'epsilon, min_owners'):
    made.ask(told=wrong)
  _eventually(lambda: ('client', 'does not agree on epsilon, min_owners')
              in made.refused(0))
  with pytest.raises(ValueError, match='used for another study: epsilon'):
    made.start(0, made.told.replaced(epsilon=2.0))
  told = _parameters()
  odd = study(**{'session': told.session},
              servers={1: told.replaced(epsilon=3.0)}.items())
  with pytest.raises(Fault, match='server1: does not agree on '
                     'epsilon'):
    odd.send(timeout=0.5)


def test_servers_that_are_gone_are_named_and_come_back(study):
  made = study(timeout=1.0)
  made.send()
  made.servers[1].stop()
  with pytest.raises(Fault, match='server1: cannot be reached'):
    made.ask()
  # Server 0 waits for it in vain, and says so to who has the time to listen.
  made.timeout = 20.0
  link = made.call(0, 'client')
  links.greet(link, made.told)
  link.send(Kind.ASK, b'null')
  with pytest.raises(Fault, match='server1: did not call within 1 seconds'):
    link.expect(Kind.STATUS)
  link.close()
  made.servers[1] = made.start(1)
  np.testing.assert_array_equal(made.ask().numbers[0], _exact(_BINS))


def test_more_servers_than_needed_answer_without_one(study):
  made = study(scheme='outer_product', num_servers=4, noise=None)
  made.send()
  whole = made.ask().numbers
  made.servers[2].stop()
  answer = made.ask()
  np.testing.assert_array_equal(answer.numbers, whole)
  assert len(answer.faults) == 1 and 'server2: cannot' in answer.faults[0]


def test_a_server_that_restarts_loses_nothing_it_has_acknowledged(
    study, monkeypatch):
  monkeypatch.setattr(owners, 'BATCH', 4)
  made = study()
  died = []

  def change(owner, entry):
    if owner == 8 and not died:
      died.append(made.servers[1].stop())
      # What a crash leaves of a message that was never acknowledged.
      with open(made.folder / 'server1' / 'inbox.log', 'ab') as log:
        log.write(entry[:50])
      made.servers[1] = made.start(1)
    return entry

  report = made.send(change=change)
  assert not any(report['refused'].values()) and died
  made.restart()
  np.testing.assert_array_equal(made.ask().numbers[0], _exact(_BINS))
  log = made.folder / 'server0' / 'inbox.log'
  log.write_bytes(log.read_bytes()[:-1] + b'X')
  made.servers[0].stop()
  with pytest.raises(ValueError, match='inbox.log of server0 .* owner 12'):
    made.start(0)


def test_a_server_that_cheats_in_the_toss_is_named(study):
  made = study(noise=None)
  made.send()
  made.deal()
  made.servers[1].stop()
  link = made.call(0, 'server1')
  links.greet(link, made.told)
  mesh = links.Links('server1', {'server0': link})

  def cheat():
    mesh.exchange(Kind.STATUS, b'[null, null]')
    mesh.exchange(Kind.ACCEPTED, made.servers[0]._inbox.close())
    mesh.exchange(Kind.COMMIT, bytes(32))
    with contextlib.suppress(Fault):
      mesh.exchange(Kind.REVEAL, bytes(32))

  asked = made.call(0, 'client')
  links.greet(asked, made.told)
  asked.send(Kind.ASK, b'null')
  cheat()
  with pytest.raises(Fault, match='server1: revealed another seed'):
    asked.expect(Kind.STATUS)
  assert not (made.folder / 'server0' / 'noise.npz').exists()
  link.close()
  asked.close()


def test_no_answer_without_a_dealer_or_with_few_owners(study):
  made = study(noise=None)
  made.send()
  with pytest.raises(Fault, match='dealer: has not dealt'):
    made.ask()
  made.deal()
  # As of a dealer that died between the two servers, and dealt again.
  (made.folder / 'server1' / 'dealt.bin').write_bytes(
      noising.deal(made.told, prg.system)[1])
  with pytest.raises(Fault, match='dealer: .* do not belong together'):
    made.ask()
  made.deal()
  assert made.ask().num_records == 13
  made = study(min_owners=13)
  made.send(change=lambda owner, entry: b'' if owner == 3 else entry)
  with pytest.raises(Fault, match='only 12 owners'):
    made.ask()


@pytest.mark.parametrize('kwargs', [
    dict(), dict(scheme='additive', num_servers=3, num_colluding=2),
    dict(scheme='outer_product', num_servers=3)])
def test_nobody_is_a_number_of_owners(study, kwargs):
  # To refuse would tell clients that there was nobody.
  made = study(adjacency='add_or_remove_one', **kwargs)
  answer = made.ask()
  assert answer.num_records is None and not answer.numbers.any()


@pytest.mark.parametrize('kwargs, message', [
    (dict(session='x'), 'session'), (dict(scheme='fss'), 'scheme'),
    (dict(num_servers=3), '2'), (dict(num_colluding=2), 'collude'),
    (dict(epsilon=0.0), 'epsilon'), (dict(adjacency='any'), 'adjacency'),
    (dict(lower=1.0), 'lower'), (dict(num_owners=0), 'num_owners'),
    (dict(noise='none'), 'noise'),
    (dict(scheme='additive', noise='joint'), 'joint noise'),
    (dict(shape=(3, 3)), 'too small'),
    (dict(adjacency='add_or_remove_one', min_owners=2), 'would tell')])
def test_bad_parameters_are_refused(kwargs, message):
  with pytest.raises(ValueError, match=message):
    _parameters(**kwargs)


def test_studies_have_folders_and_secrets_of_their_own(study):
  made = study()
  for name in ('server0', 'owners0', 'client'):
    assert (made.folder / name).stat().st_mode & 0o77 == 0
    assert (made.folder / name / 'key.pem').stat().st_mode & 0o77 == 0
  with pytest.raises(ValueError, match='not empty'):
    setup.create(made.folder, made.told, _BINS)
  with pytest.raises(ValueError, match='points must be'):
    made.ask(np.array([10]))
