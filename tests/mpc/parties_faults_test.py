"""Parties that are down, restarted, strangers or wrong, over real TLS."""

import contextlib
import socket
import ssl

import numpy as np
import pytest

from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import inbox
from dpjax.mpc.parties import links
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from tests.mpc.studies import BINS
from tests.mpc.studies import eventually
from tests.mpc.studies import exact
from tests.mpc.studies import parameters


def _sealed(made, owner, index=0, **kwargs):
  """A good entry of an owner; `kwargs` make it less so."""
  held = setup.owners(made.folder, 'owners0')
  scheme = made.told.build_scheme()
  message = scheme.shares(np.array([BINS[owner]]), source=prg.system)[index]
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
  np.testing.assert_array_equal(answer.numbers[0], exact(BINS[kept]))


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
      answer.numbers[0], exact(np.delete(BINS, [2, 5])))
  assert made.refused(0) == {('owner 2', inbox.LOST): 1,
                             ('owner 5', inbox.LOST): 1}


@pytest.mark.every(3)
@pytest.mark.parametrize('change, reason', [
    (lambda h, p: b'X' + h[1:] + p, 'are not a frame'),
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
  np.testing.assert_array_equal(answer.numbers[0], exact(BINS[first:]))
  eventually(lambda: any(party == 'owners0' and reason in why
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
  np.testing.assert_array_equal(made.ask().numbers[0], exact(BINS))
  eventually(lambda: {party for party, _ in made.refused(0)} == {
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
  eventually(lambda: ('a stranger at 127.0.0.1', 'TLS: peer did not return a '
                      'certificate') in made.refused(0))
  made.servers[1].stop()
  link = made.call(0, 'server0')
  links.greet(link, made.told)
  with pytest.raises(Fault, match='closed'):
    link.expect(Kind.STATUS)
  link.close()
  eventually(lambda: ('server0', 'has no role that this server knows')
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
  eventually(lambda: ('client', 'does not agree on epsilon, min_owners')
             in made.refused(0))
  with pytest.raises(ValueError, match='used for another study: epsilon'):
    made.start(0, made.told.replaced(epsilon=2.0))
  told = parameters()
  odd = study(**{'session': told.session},
              servers={1: told.replaced(epsilon=3.0)}.items())
  with pytest.raises(Fault, match='server1: does not agree on '
                     'epsilon'):
    odd.send(timeout=0.5)


@pytest.mark.slow
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
  np.testing.assert_array_equal(made.ask().numbers[0], exact(BINS))


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
  np.testing.assert_array_equal(made.ask().numbers[0], exact(BINS))
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
