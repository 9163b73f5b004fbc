"""Tests a study's reports, and connections that come and go."""

import json
import socket
import struct
import threading
import time

import numpy as np
import pytest

from dpjax.mpc.parties import channel
from dpjax.mpc.parties import client
from dpjax.mpc.parties import inbox
from dpjax.mpc.parties import links
from dpjax.mpc.parties import listening
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.channel import Traffic
from tests.mpc.studies import BINS
from tests.mpc.studies import eventually
from tests.mpc.studies import exact
from tests.mpc.studies import parameters


def _report(study, index):
  path = study.folder / study.params.servers[index] / 'report.json'
  return json.loads(path.read_text())


def test_what_one_end_sends_the_other_end_receives(make_study):
  """Reports of both ends agree on the bytes sent by each party, by kind."""
  study = make_study(noise=None)
  sent, dealt = study.send()['traffic'], study.deal()
  answers = [study.ask(), study.ask(np.array([1, 2]))]
  # Links are to owners, the dealer, two clients and the other server.
  eventually(lambda: all(len(one._traffic) == 5 for one in study.servers))
  study.stop()
  reports = [_report(study, index) for index in range(2)]
  for index, name in enumerate(study.params.servers):
    report, peer = reports[index], study.params.servers[1 - index]
    assert (report['server'], report['refused']) == (name, [])
    assert report['accepted'] == report['used'] == 13
    assert set(report['seconds']) == {'collect', 'agree', 'evaluate'}
    assert all(0 < value < 60 for value in report['seconds'].values())
    asked = channel.total(answer.traffic[name] for answer in answers)
    for other, theirs in (
        ('owners0', sent[name]), ('dealer', dealt[name].to_json()),
        ('client', asked.to_json()),
        (peer, reports[1 - index]['traffic'][name])):
      ours = report['traffic'][other]
      assert ours['payload_sent'] == theirs['payload_received']
      assert ours['payload_received'] == theirs['payload_sent']
      # A connection's last bytes may come after its end.
      assert 0 <= theirs['wire_sent'] - ours['wire_received'] < 100
      assert 0 <= ours['wire_sent'] - theirs['wire_received'] < 100
      assert ours['wire_sent'] > sum(ours['payload_sent'].values()) + 50


def test_traffic_of_several_connections_adds_up():
  one, two = Traffic(wire_sent=5, wire_received=70), Traffic(
      wire_sent=300, wire_received=2)
  one.sent[Kind.ASK], two.sent[Kind.ASK], two.received[Kind.SHARES] = 4, 40, 8
  assert channel.total([one, two]).to_json() == {
      'payload_sent': {'ask': 44}, 'payload_received': {'shares': 8},
      'wire_sent': 305, 'wire_received': 72}


def test_an_error_within_a_server_ends_a_connection_and_is_written_down(
    make_study, monkeypatch, capfd):
  study = make_study()

  def fail(link):
    raise RuntimeError('planted\nhere')

  with monkeypatch.context() as patch:
    patch.setattr(study.servers[0], '_serve_owners', fail)
    link = study.call(0, 'owners0')
    links.greet(link, study.params)
    with pytest.raises(Fault, match='server0: closed the connection'):
      link.expect(Kind.RECEIPT)
    link.close()
  (party, reason), = study.refused(0)
  assert party == 'server0' and reason.startswith('failed: ')
  assert 'planted' in reason and '\n' not in reason
  assert 'RuntimeError: planted' in capfd.readouterr().err
  study.send()
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))


def test_connections_beyond_the_limit_are_closed_and_slots_come_back(
    make_study, monkeypatch):
  monkeypatch.setattr(listening, 'MAX_CONNECTIONS', 2)
  study = make_study()
  address = study.servers[0].address
  with socket.create_connection(address), socket.create_connection(address):
    with socket.create_connection(address, timeout=5) as third:
      assert third.recv(1) == b''
  assert study.refused(0)[
      'a stranger at 127.0.0.1', 'too many connections'] == 1
  eventually(lambda: study.servers[0]._slots._value == 2)
  study.send()
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))


def test_the_last_call_of_a_server_counts_if_it_lives(make_study):
  """A server's last call counts while it lives; a dead one is dropped."""
  study = make_study()
  study.send()
  study.servers[1].stop()
  waiting = lambda: study.servers[0]._calls.get('server1')
  first, second = (study.call(0, 'server1') for _ in range(2))
  links.greet(first, study.params)
  eventually(waiting)
  before = waiting()
  links.greet(second, study.params)
  eventually(lambda: waiting() is not before)
  eventually(lambda: first.gone)
  assert not second.gone
  for link in (first, second):
    link.close()
  eventually(lambda: waiting().gone)
  study.servers[1] = study.start(1)
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))


@pytest.mark.every(2)
@pytest.mark.parametrize('reset', [False, True])
def test_a_connection_is_gone_when_it_is_closed_or_reset(reset):
  with socket.create_server(('127.0.0.1', 0)) as listener:
    other = socket.create_connection(listener.getsockname())
    end = channel.Channel.__new__(channel.Channel)
    end._timeout, (end._socket, _) = 7.0, listener.accept()
  assert not end.gone and end._socket.gettimeout() == 7.0
  if reset:
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                     struct.pack('ii', 1, 0))
  other.close()
  eventually(lambda: end.gone)
  end.close()
  assert end.gone


@pytest.mark.every(2)
def test_a_server_that_waits_in_vain_closes_its_other_connections(make_study):
  study = make_study(scheme='additive', num_servers=3, num_colluding=2,
                     timeout=1.0)
  study.send()
  study.servers[2].stop()
  asked = study.call(1, 'client')
  asked._socket.settimeout(5)
  links.greet(asked, study.params)
  asked.send(Kind.ASK, b'null')
  with pytest.raises(Fault, match='server2: did not call within 1 seconds'):
    asked.expect(Kind.STATUS)
  asked.close()
  assert ('server2', 'did not call within 1 seconds') in study.refused(1)
  waiting = lambda: study.servers[0]._calls.get('server1')
  eventually(lambda: waiting() and waiting().gone)


def test_nothing_is_accepted_after_the_first_answer(make_study):
  study = make_study()
  late = lambda owner, entry: b'' if owner == 3 else entry
  study.send(change=late)
  before = study.ask().numbers
  report = study.send()
  assert report['refused'] == {
      name: [(owner, inbox.CLOSED) for owner in range(13)]
      for name in study.params.servers}
  np.testing.assert_array_equal(study.ask().numbers, before)
  np.testing.assert_array_equal(before[0], exact(np.delete(BINS, 3)))
  assert study.refused(0)['owner 3', inbox.CLOSED] == 1


def _courier(study, timeout):
  return owners.Courier(
      study.params, 'server0', name='owners0', folder=study.folder / 'owners0',
      addresses=study.folder / 'addresses', timeout=timeout)


@pytest.mark.every(2)
def test_a_relay_waits_for_a_server_that_starts_late(make_study):
  study = make_study()
  address = study.folder / 'addresses' / 'server0'
  text = address.read_text()
  address.unlink()
  start = time.monotonic()
  with pytest.raises(Fault, match='server0: has not started'):
    _courier(study, 0.15)._call()
  assert 0.15 <= time.monotonic() - start < 3
  late = threading.Timer(0.15, address.write_text, [text])
  late.start()
  study.send()
  late.join()
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))


def test_a_batch_that_did_not_go_out_is_sent_again(make_study):
  study = make_study()
  courier = _courier(study, 5.0)
  courier._call().close()
  held = setup.owners(study.folder, 'owners0')
  scheme = study.params.build_scheme()
  batch, _ = owners.sealed_batches(
      scheme.shares(held['bins'], source=lambda size: bytes(range(256))[:1] *
                    size), list(held['tokens']), 0,
      servers=study.params.servers, digest=study.params.digest,
      source=lambda size: bytes(size), change=None)
  courier.post(batch)
  assert courier._link is None
  assert courier.receipt(batch) == []
  assert study.servers[0]._inbox.accepted.all()
  # The batch is posted again, after a server that had it comes back.
  courier._drop()
  assert courier.receipt(batch) == []
  courier.post(batch)
  assert courier.receipt(batch) == [
      (owner, inbox.REPEATED) for owner in range(13)]
  traffic = courier.close()
  assert traffic.sent[Kind.OWNERS] == 3 * len(batch) and courier._link is None


def test_folders_of_studies(tmp_path):
  params = parameters()
  folder = tmp_path / 'study'
  setup.create(folder, params, BINS, num_relays=11)
  assert setup.relays(folder) == [f'owners{index}' for index in range(11)]
  parts = [setup.owners(folder, name) for name in setup.relays(folder)]
  np.testing.assert_array_equal(
      np.concatenate([part['owners'] for part in parts]), np.arange(13))
  np.testing.assert_array_equal(
      np.concatenate([part['bins'] for part in parts]), BINS)
  assert {part['tokens'].shape for part in parts} == {(2, 1, 32), (2, 2, 32)}
  assert not any('labels' in part for part in parts)
  assert setup.read(folder) == params
  mode = (folder / 'owners0' / 'owners.npz').stat().st_mode
  assert mode & 0o777 == 0o600
  with pytest.raises(ValueError, match='holds no study'):
    setup.remove(tmp_path)
  assert folder.exists()
  setup.remove(folder)
  assert not folder.exists()
  with pytest.raises(ValueError, match='num_relays'):
    setup.create(folder, params, BINS, num_relays=0)
  with pytest.raises(ValueError, match='13'):
    setup.create(folder, params, BINS[:-1])
  assert not folder.exists()


@pytest.mark.every(1)
@pytest.mark.parametrize('said, kwargs, reason', [
    (b'x', {}, 'Expecting value'), (b'"a"', {}, 'a where a number of owners'),
    (b'null', {}, 'None where a number'), (b'[' * 100_000, {}, 'recursion'),
    (b'13', dict(adjacency='add_or_remove_one'), '13 where a number')])
def test_a_number_of_owners_that_is_none_is_a_fault(said, kwargs, reason):

  class Link:
    peer = 'server0'

    def expect(self, kind):
      assert kind is Kind.STATUS
      return said

  with pytest.raises(Fault, match=f'server0: sent .*{reason}'):
    client._listen(Link(), parameters(**kwargs), None)


class _Endless:
  """A link that never stops sending full frames of data."""
  peer = 'server0'

  def __init__(self):
    self.frames = 0

  def expect(self, kind):
    self.frames += 1
    return range(channel.MAX_PAYLOAD)  # Only its length is read.


def test_data_of_several_frames_have_an_end():
  link = _Endless()
  with pytest.raises(Fault, match='server0: sent more than 268435456 bytes'):
    links.receive_long(link, Kind.SHARES)
  assert (link.frames - 1) * channel.MAX_PAYLOAD == 2**28


@pytest.mark.parametrize('size', [0, 1, 9, 10, 11, 20])
def test_data_are_sent_as_full_frames_and_one_that_is_not(size, monkeypatch):
  monkeypatch.setattr(channel, 'MAX_PAYLOAD', 10)
  sent, data = [], bytes(range(size))

  class Link:
    send = staticmethod(lambda kind, part: sent.append(part))
    expect = staticmethod(lambda kind: sent.pop(0))

  links.send_long(Link(), Kind.SHARES, data)
  assert [len(part) for part in sent] == [10] * (size // 10) + [size % 10]
  assert links.receive_long(Link(), Kind.SHARES, limit=size) == data
  assert not sent


@pytest.mark.parametrize('name', ['server0', 'server3', 'server11'])
def test_exchanges_follow_the_numbers_of_servers(name):
  """The lower-numbered server of a pair speaks first, in any order of links."""
  calls = []

  class Link:

    def __init__(self, peer):
      self.peer = peer

    def send(self, kind, data):
      calls.append(('send', self.peer, data))

    def expect(self, kind):
      calls.append(('expect', self.peer))
      return b'of ' + self.peer.encode()

  peers = ['server10', 'server2', 'server1']
  mesh = links.Links(name, {peer: Link(peer) for peer in peers})
  theirs = mesh.exchange(Kind.MASKS, {peer: peer.encode() for peer in peers})
  assert theirs == {peer: b'of ' + peer.encode() for peer in peers}
  wanted = []
  for number in (1, 2, 10):
    peer = f'server{number}'
    both = [('send', peer, peer.encode()), ('expect', peer)]
    wanted += both if links.number(name) < number else both[::-1]
  assert calls == wanted


def test_servers_that_count_other_owners_are_named():
  params = parameters()
  shares = np.zeros((1, 10), np.uint64)
  with pytest.raises(Fault, match='server0 and server1: do not agree on the '
                     'number of owners'):
    client._combine(params, {'server0': (12, shares), 'server1': (13, shares)},
                    (), {})
  answer = client._combine(params, {'server0': (12, shares + 3),
                                    'server1': (12, shares)}, ('f',), {'a': 1})
  assert (answer.num_records, answer.faults, answer.traffic) == (12, ('f',),
                                                                 {'a': 1})
  assert (answer.numbers == 3).all()
