"""Tests parties that are down, restarted, unknown or wrong, over real TLS."""

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


def _sealed(study, owner, index=0, **kwargs):
  """Returns an owner's valid entry; `kwargs` replace parts of it."""
  held = setup.owners(study.folder, 'owners0')
  scheme = study.params.build_scheme()
  message = scheme.shares(np.array([BINS[owner]]), source=prg.system)[index]
  named = dict(owner=owner, digest=study.params.digest,
               server=study.params.servers[index]) | kwargs
  return enrolment.entry(owner, enrolment.seal(
      held['tokens'][index, owner].tobytes(),
      bytes(8) + kwargs.get('payload', message.tobytes()),
      **{k: v for k, v in named.items() if k != 'payload'}))


def test_bad_messages_are_refused_for_their_owner_alone(make_study):
  study = make_study()
  rng = np.random.default_rng(5)
  spoil = {
      0: lambda entry: 2 * entry,
      1: lambda entry: enrolment.entry(1, entry[8:-1]),
      2: lambda entry: entry[:40] + bytes([entry[40] ^ 4]) + entry[41:],
      3: lambda entry: enrolment.entry(4, entry[8:]),
      5: lambda entry: enrolment.entry(5, rng.bytes(len(entry) - 8)),
      6: lambda entry: enrolment.entry(999, entry[8:]) + entry,
      # These are for another server, of another study, and with a surplus bit.
      7: lambda entry: _sealed(study, 7, server='server9'),
      8: lambda entry: _sealed(study, 8, digest=bytes(32)),
      9: lambda entry: _sealed(study, 9, payload=b'\xff' * 223)}
  seal, length = ('its seal does not hold for this server and session',
                  inbox.LENGTH)
  report = study.send(change=lambda owner, entry: spoil.get(
      owner, lambda entry: entry)(entry))
  # The length differs from ceil(1780 / 8): 10 thresholds, 4 bits.
  reasons = dict(report['refused']['server0'][i] for i in range(
      len(report['refused']['server0'])))
  assert reasons == {0: inbox.REPEATED, 1: length, 2: seal, 4: seal, 5: seal,
                     999: inbox.UNKNOWN, 7: seal, 8: seal, 9: length}
  assert study.refused(1)['owner 8', seal] == 1
  kept = [0, 4, 6, 10, 11, 12]
  answer = study.ask()
  assert answer.num_records == len(kept)
  np.testing.assert_array_equal(answer.numbers[0], exact(BINS[kept]))


def test_malformed_messages_under_a_good_seal_are_refused(make_study):
  study = make_study(scheme='outer_product', num_servers=3)
  size = packing.num_bytes(study.params.build_scheme().bits(0))
  link = study.call(0, 'owners0')
  links.greet(link, study.params)
  link.send(Kind.OWNERS, _sealed(study, 3, payload=b'\xff' * size) +
            _sealed(study, 4))
  assert link.expect(Kind.RECEIPT).startswith(b'{"accepted": 1')
  link.close()
  assert ('owner 3', inbox.MALFORMED) in study.refused(0)


def test_an_owner_of_one_server_only_does_not_count(make_study):
  study = make_study()
  flip = lambda owner, entry: entry[:-1] + bytes([entry[-1] ^ 1])
  both = iter(range(26))
  # The second half of the calls goes to the second server.
  study.send(change=lambda owner, entry: flip(owner, entry)
             if next(both) >= 13 and owner in (2, 5) else entry)
  answer = study.ask()
  np.testing.assert_array_equal(
      answer.numbers[0], exact(np.delete(BINS, [2, 5])))
  assert study.refused(0) == {('owner 2', inbox.LOST): 1,
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
def test_bad_frames_end_a_connection_and_nothing_else(make_study, change,
                                                      reason):
  study = make_study()
  link = study.call(0, 'owners0')
  links.greet(link, study.params)
  payload = _sealed(study, 0)
  header = channel._HEADER.pack(b'dpjx', 1, Kind.OWNERS,
                                bytes.fromhex(study.params.session), b'owners0',
                                1, len(payload))
  link._run(link._tls.write, change(header, payload))
  if reason == 'closed the connection':
    link.close()
  else:
    with contextlib.suppress(Fault):
      while True:
        link.expect(Kind.RECEIPT)
    link.close()
  study.send()
  answer = study.ask()
  # Entries before the bad frame count, unlike the shares after it.
  first = ('owner 0', inbox.MIXED) in study.refused(0)
  assert first == (reason == 'frame 1 where 2 was due')
  np.testing.assert_array_equal(answer.numbers[0], exact(BINS[first:]))
  eventually(lambda: any(party == 'owners0' and reason in why
                         for party, why in study.refused(0)))


def test_random_bytes_end_a_connection_and_nothing_else(make_study):
  study, rng = make_study(), np.random.default_rng(9)
  for trial in range(60):
    if trial % 2:  # This fails before TLS.
      with socket.create_connection(study.servers[0].address) as raw:
        raw.sendall(rng.bytes(int(rng.integers(1, 300))))
    else:          # These act as owners, after the greeting or instead of it.
      link = study.call(0, 'owners0')
      if trial % 4:
        links.greet(link, study.params)
      with contextlib.suppress(Fault):
        link._run(link._tls.write, rng.bytes(int(rng.integers(50, 900))))
        link.expect(Kind.RECEIPT)
      link.close()
  study.send()
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))
  eventually(lambda: {party for party, _ in study.refused(0)} == {
      'owners0', 'a stranger at 127.0.0.1'})


def test_who_has_no_certificate_of_this_study_is_a_stranger(make_study):
  study, other = make_study(), make_study()
  with pytest.raises(Fault, match='server0: TLS: self-signed'):
    study.call(0, 'client', folder=other.folder / 'client')
  # It shows no certificate, or one of a party that a server does not accept.
  bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  bare.load_verify_locations(study.folder / 'client' / 'authority.pem')
  link = channel.Channel(
      socket.create_connection(study.servers[0].address), bare, name='client',
      session=study.params.session, timeout=5.0, server_name='server0')
  with pytest.raises(Fault):
    links.greet(link, study.params)
  eventually(lambda: ('a stranger at 127.0.0.1', 'TLS: peer did not return a '
                      'certificate') in study.refused(0))
  study.servers[1].stop()
  link = study.call(0, 'server0')
  links.greet(link, study.params)
  with pytest.raises(Fault, match='closed'):
    link.expect(Kind.STATUS)
  link.close()
  eventually(lambda: ('server0', 'has no role that this server knows')
             in study.refused(0))
  # This server shows another's certificate.
  (study.folder / 'addresses' / 'server1').write_text(
      (study.folder / 'addresses' / 'server0').read_text())
  with pytest.raises(Fault, match='server1: TLS: hostname mismatch'):
    study.ask()


def test_other_parameters_are_refused_by_name(make_study):
  study = make_study()
  wrong = study.params.replaced(epsilon=2.0, min_owners=3)
  with pytest.raises(Fault, match='server0: does not agree on '
                     'epsilon, min_owners'):
    study.ask(params=wrong)
  eventually(lambda: ('client', 'does not agree on epsilon, min_owners')
             in study.refused(0))
  with pytest.raises(ValueError, match='used for another study: epsilon'):
    study.start(0, study.params.replaced(epsilon=2.0))
  params = parameters()
  odd = make_study(**{'session': params.session},
                   servers={1: params.replaced(epsilon=3.0)}.items())
  with pytest.raises(Fault, match='server1: does not agree on '
                     'epsilon'):
    odd.send(timeout=0.5)


@pytest.mark.slow
def test_servers_that_are_gone_are_named_and_come_back(make_study):
  study = make_study(timeout=1.0)
  study.send()
  study.servers[1].stop()
  with pytest.raises(Fault, match='server1: cannot be reached'):
    study.ask()
  # Server 0 waits for it in vain, and says so to a patient client.
  study.timeout = 20.0
  link = study.call(0, 'client')
  links.greet(link, study.params)
  link.send(Kind.ASK, b'null')
  with pytest.raises(Fault, match='server1: did not call within 1 seconds'):
    link.expect(Kind.STATUS)
  link.close()
  study.servers[1] = study.start(1)
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))


def test_more_servers_than_needed_answer_without_one(make_study):
  study = make_study(scheme='outer_product', num_servers=4, noise=None)
  study.send()
  whole = study.ask().numbers
  study.servers[2].stop()
  answer = study.ask()
  np.testing.assert_array_equal(answer.numbers, whole)
  assert len(answer.faults) == 1 and 'server2: cannot' in answer.faults[0]


def test_a_server_that_restarts_loses_nothing_it_has_acknowledged(
    make_study, monkeypatch):
  monkeypatch.setattr(owners, 'BATCH', 4)
  study = make_study()
  died = []

  def change(owner, entry):
    if owner == 8 and not died:
      died.append(study.servers[1].stop())
      # A crash leaves this part of a message that was never acknowledged.
      with open(study.folder / 'server1' / 'inbox.log', 'ab') as log:
        log.write(entry[:50])
      study.servers[1] = study.start(1)
    return entry

  report = study.send(change=change)
  assert not any(report['refused'].values()) and died
  study.restart()
  np.testing.assert_array_equal(study.ask().numbers[0], exact(BINS))
  log = study.folder / 'server0' / 'inbox.log'
  text = log.read_bytes()
  log.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
  study.servers[0].stop()
  with pytest.raises(ValueError, match='inbox.log of server0 .* owner 12'):
    study.start(0)


def test_a_server_that_cheats_in_the_toss_is_named(make_study):
  study = make_study(noise=None)
  study.send()
  study.deal()
  study.servers[1].stop()
  link = study.call(0, 'server1')
  links.greet(link, study.params)
  mesh = links.Links('server1', {'server0': link})

  def cheat():
    mesh.exchange(Kind.STATUS, b'[null, null]')
    mesh.exchange(Kind.ACCEPTED, study.servers[0]._inbox.close())
    mesh.exchange(Kind.COMMIT, bytes(32))
    with contextlib.suppress(Fault):
      mesh.exchange(Kind.REVEAL, bytes(32))

  asked = study.call(0, 'client')
  links.greet(asked, study.params)
  asked.send(Kind.ASK, b'null')
  cheat()
  with pytest.raises(Fault, match='server1: revealed another seed'):
    asked.expect(Kind.STATUS)
  assert not (study.folder / 'server0' / 'noise.npz').exists()
  link.close()
  asked.close()
