"""Tests studies of sums on threads over real TLS: rounds, dropouts, replays."""

import json
import threading

import numpy as np
import pytest

from dpjax.mpc import prg
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import inbox
from dpjax.mpc.parties import links
from dpjax.mpc.parties import setup
from dpjax.mpc.parties import sum_parameters
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from tests.mpc.studies import eventually
from tests.mpc.sum_studies import parameters
from tests.mpc.sum_studies import scaled
from tests.mpc.sum_studies import VECTORS

_SEAL = 'its seal does not hold for this server and session'


def _entry(study, owner, index, number, message, *, name=None, vector=None,
           mark=bytes(enrolment.MARK_BYTES), source=prg.system):
  """Returns an owner's valid entry for one server and one round."""
  summed = study.params.vector_sum
  vector = VECTORS[owner] if vector is None else vector
  payload = summed.shares(summed.encode(vector[np.newaxis]),
                          source=source)[index][0].tobytes()
  held = setup.owners(study.folder, 'owners0')
  return enrolment.entry(owner if name is None else name, enrolment.seal(
      held['tokens'][index][owner].tobytes(), mark + payload, owner=owner,
      digest=study.params.round_digest(number, message),
      server=study.params.servers[index]))


def _post(study, index, *batches):
  """Sends batches to one server as the first relay; returns the receipts."""
  link = study.call(index, 'owners0')
  receipts = []
  try:
    links.greet(link, study.params)
    for batch in batches:
      link.send(Kind.OWNERS, batch)
      receipts.append(json.loads(link.expect(Kind.RECEIPT)))
  finally:
    link.close()
  return receipts


@pytest.mark.parametrize('num_servers, num_relays', [(2, 1), (3, 2), (4, 1)])
def test_rounds_have_exact_sums_before_noise(make_sums, num_servers,
                                             num_relays):
  study = make_sums(num_servers=num_servers, num_relays=num_relays)
  study.owners()
  with study.client() as client:
    for number, divisor in ((0, b'1'), (1, b'2'), (3, b'4')):
      client.open(number, divisor)
      answer = client.ask(number, patience=4.0)
      np.testing.assert_array_equal(
          answer.units, VECTORS.sum(0) * 2**8 / float(divisor))
      np.testing.assert_array_equal(answer.mean,
                                    VECTORS.mean(0) / float(divisor))
      assert answer.took_part.all()
    study.finish(client)
  assert {report['rounds'] for report in study.reports.values()} == {3}
  sizes = [study.params.vector_sum.message_bytes(server)
           for server in range(num_servers)]
  assert sizes == [16] * (num_servers - 1) + [12]
  for name, size in zip(study.params.servers, sizes, strict=True):
    sent = [report['traffic'][name]['payload_sent']['owners']
            for report in study.reports.values()]
    assert sum(sent) == 3 * 5 * (enrolment.AROUND_BYTES + size)
  assert not any(study.refused(j) for j in range(num_servers))


@pytest.mark.sound
def test_noise_of_every_server_is_in_the_sum_once(make_sums, monkeypatch):
  study = make_sums(num_servers=3, noise_variance=10**6, value_bits=40)
  drawn = []
  draw = type(study.params.vector_sum).draw_noise

  def record(summed):
    drawn.append(draw(summed))
    return drawn[-1]

  monkeypatch.setattr(type(study.params.vector_sum), 'draw_noise', record)
  study.owners()
  with study.client() as client:
    for number in range(2):
      client.open(number, b'1')
      units = client.ask(number, patience=4.0).units
      noise = drawn[3 * number:]
      assert len(noise) == 3
      np.testing.assert_array_equal(
          units, VECTORS.sum(0) * 2**8 + np.sum(noise, 0))
    study.finish(client)
  # No server draws zeros, or the same noise as another or as before.
  assert len({tuple(one) for one in drawn}) == 6 and all(map(np.any, drawn))


@pytest.mark.sound
def test_owners_who_drop_out_are_left_out_and_the_divisor_stays(make_sums):
  """An owner is left out if one server lacks its message, or all of them."""
  study = make_sums(num_servers=3)
  calls = iter(range(10**6))

  def change(owner, entry):
    server = next(calls) // 5 % 3
    return b'' if owner == 1 or (owner == 4 and server == 2) else entry

  study.owners(change=change)
  kept = [0, 2, 3]
  with study.client() as client:
    client.open(0, b'1')
    study.await_messages(4, 4, 3)
    answer = client.ask(0, patience=0.1)
    assert answer.took_part.tolist() == [True, False, True, True, False]
    np.testing.assert_array_equal(answer.total, VECTORS[kept].sum(0))
    # One owner's weight is 1 / 5, whoever else takes part.
    np.testing.assert_array_equal(answer.mean, VECTORS[kept].sum(0) / 5)
    study.finish(client)
  assert study.refused(0) == {('owner 4', inbox.LOST): 1}


def test_a_relay_that_is_gone_takes_only_its_owners_with_it(make_sums):
  study = make_sums(num_relays=2)  # owners 0, 1 and 2; owners 3 and 4

  def fail(number, message):
    if number == 1:
      raise RuntimeError('planted')
    return scaled(number, message)

  gone = threading.Thread(target=lambda: pytest.raises(
      RuntimeError, study.take_part, 'owners1', fail), daemon=True)
  gone.start()
  here = threading.Thread(target=study.take_part, args=('owners0',),
                          daemon=True)
  here.start()
  with study.client() as client:
    client.open(0, b'1')
    assert client.ask(0, patience=4.0).took_part.all()
    client.open(1, b'1')
    study.await_messages(3, 3)
    answer = client.ask(1, patience=0.1)
    assert answer.took_part.tolist() == [True] * 3 + [False] * 2
    np.testing.assert_array_equal(answer.mean, VECTORS[:3].sum(0) / 5)
    client.finish()
  for one in (here, gone):
    one.join(5)
  assert not study.refused(0)


def test_too_few_owners_end_a_round_and_the_next_one_can_be_opened(make_sums):
  study = make_sums(min_owners=5)
  study.owners(change=lambda owner, entry, seen=[]: seen.append(owner) or (
      b'' if owner == 3 and len(seen) <= 10 else entry))
  with study.client() as client:
    client.open(0, b'1')
    study.await_messages(4, 4)
    with pytest.raises(Fault, match='server0: .*only 4 owners .* min_owners'):
      client.ask(0, patience=0.1)
    with pytest.raises(Fault, match='asked again for round 0'):
      client.ask(0, patience=0.1)
    client.open(1, b'1')
    assert client.ask(1, patience=4.0).took_part.all()
    study.finish(client)


@pytest.mark.sound
def test_a_round_has_one_answer(make_sums):
  study = make_sums()
  study.owners()
  with study.client() as client:
    with pytest.raises(Fault, match='asked for round 0, which is not open'):
      client.ask(0, patience=1.0)
    client.open(1, b'1')
    client.ask(1, patience=4.0)
    with pytest.raises(Fault, match='asked again for round 1: a round has one'):
      client.ask(1, patience=4.0)
    for number in (1, 0):
      with pytest.raises(Fault, match=f'opened round {number} after round 1'):
        client.open(number, b'2')
    with pytest.raises(Fault, match='opened round 5 of 4'):
      client.open(5, b'1')
    with pytest.raises(Fault, match='patience of 9 seconds, not below the time'):
      client.ask(1, patience=9)
    # Another connection of the client is no way around it.
    with study.client() as again, pytest.raises(Fault, match='asked again'):
      again.ask(1, patience=1.0)
    study.finish(client)
    with pytest.raises(Fault, match='asked again for round 4'):
      client.ask(4, patience=1.0)
    with pytest.raises(Fault, match='opened round 4 after round 4'):
      client.open(4, b'1')


@pytest.mark.sound
def test_messages_of_another_round_message_or_owner_are_refused(make_sums):
  study = make_sums()
  with study.client() as client:
    client.open(0, b'1')
    valid = [_entry(study, owner, 0, 0, b'1') for owner in range(5)]
    wrong = (
        _entry(study, 3, 0, 1, b'1'),             # sealed for another round
        _entry(study, 3, 0, 0, b'2'),             # from another message
        _entry(study, 3, 0, 0, b'1', name=4),     # in the name of another owner
        _entry(study, 3, 1, 0, b'1'))             # for another server
    receipt, = _post(study, 0, b''.join(wrong) + valid[0])
    # Messages to the two servers differ in length.
    assert receipt == {'accepted': 1, 'torn': None, 'refused': [
        [3, _SEAL], [3, _SEAL], [4, _SEAL], [3, inbox.LENGTH]]}
    # The same message again, in the round and in the next one.
    twice, = _post(study, 0, valid[0] + valid[1] + valid[1])
    assert twice['accepted'] == 1
    assert twice['refused'] == [[0, inbox.REPEATED], [1, inbox.REPEATED]]
    # Server 1 has none of them, so nobody takes part.
    answer = client.ask(0, patience=0.1)
    assert not answer.took_part.any() and not answer.units.any()
    closed, = _post(study, 0, valid[2])
    assert closed['refused'] == [[2, inbox.CLOSED]]
    client.open(1, b'1')
    replayed, = _post(study, 0, b''.join(valid))
    assert replayed['refused'] == [[owner, _SEAL] for owner in range(5)]
  assert study.refused(0)['owner 0', _SEAL] == 1


def test_shares_of_two_splittings_do_not_add_up_and_are_left_out(make_sums):
  study = make_sums()
  with study.client() as client:
    client.open(0, b'1')
    for index in range(2):
      # Owner 0 sends the parts of one splitting, owner 1 parts of two.
      _post(study, index, b''.join([
          _entry(study, 0, index, 0, b'1', source=prg.Stream(bytes(32))),
          _entry(study, 1, index, 0, b'1', mark=bytes([index]) * 8)]))
    answer = client.ask(0, patience=0.1)
  assert answer.took_part.tolist() == [True] + [False] * 4
  np.testing.assert_array_equal(answer.total, VECTORS[0])
  assert study.refused(0)['owner 1', inbox.MIXED] == 1


def test_servers_with_different_messages_of_a_round_do_not_answer(make_sums):
  study = make_sums(timeout=2.0)
  with study.client() as client:
    first, second = client._links.values()
    for link, message in ((first, b'1'), (second, b'2')):
      link.send(Kind.OPEN, (0).to_bytes(8))
      links.send_long(link, Kind.OPEN, message)
      link.expect(Kind.RECEIPT)
    with pytest.raises(Fault, match='server0 and server1: have sent different '
                       'messages for a round'):
      study.take_part()
    with pytest.raises(Fault, match='does not agree on the round'):
      client.ask(0, patience=0.1)


def test_messages_before_the_first_round_and_odd_frames_are_refused(make_sums):
  study = make_sums()
  with pytest.raises(Fault, match='closed the connection'):
    _post(study, 0, b'')
  eventually(lambda: ('owners0', 'sent messages before the first round')
             in study.refused(0))
  for name, kind in (('owners0', Kind.ROUND), ('client', Kind.OPEN)):
    link = study.call(0, name)
    links.greet(link, study.params)
    link.send(kind, b'x' * 20)
    with pytest.raises(Fault, match='closed the connection'):
      link.expect(Kind.RECEIPT)
    link.close()
    eventually(lambda name=name: (
        name, 'sent 20 bytes where the number of a round was due')
               in study.refused(0))
  with study.client() as client:
    client.open(0, b'1')
    link, _ = client._links.values()
    for asked in (b'{', b'[0]', b'[0, "x"]', b'7'):
      link.send(Kind.ASK, asked)
      with pytest.raises(Fault):
        link.expect(Kind.STATUS)
  with pytest.raises(Fault, match='server0: does not agree on num_rounds'):
    study.client(study.params.replaced(num_rounds=9))


@pytest.mark.sound
def test_a_server_that_has_run_does_not_start_again(make_sums):
  study = make_sums(timeout=1.0)
  study.servers[1].stop()
  with pytest.raises(ValueError, match='server1 has run before, .* study is '
                     'over'):
    study.start(1)
  with pytest.raises(Fault, match='server1: cannot be reached'):
    study.client()


@pytest.mark.sound
def test_a_vector_above_the_bound_is_an_error_of_its_owner(make_sums):
  study = make_sums()
  with study.client() as client:
    client.open(0, b'0.5')  # doubles the vectors
    with pytest.raises(ValueError, match='vector 1 has an l2 norm above bound'):
      study.take_part(vectors=lambda number, message: scaled(
          number, message)[[3, 1, 3, 3, 3]])
    # Nothing of its relay has been sent.
    assert not client.ask(0, patience=0.1).took_part.any()


def test_what_messages_are_sealed_for_depends_on_all_of_it():
  params = parameters()
  digests = {one.round_digest(number, message)
             for one in (params, params.replaced(noise_variance=1))
             for number in (0, 1, 256) for message in (b'', b'\0', b'1')}
  assert len(digests) == 18
  assert sum_parameters.from_bytes(params.to_bytes()) == params
  with pytest.raises(ValueError, match='not the parameters of a study of sums'):
    sum_parameters.from_bytes(b'{}')


@pytest.mark.parametrize('kwargs, message', [
    (dict(session='x'), 'session'), (dict(num_rounds=0), 'num_rounds'),
    (dict(num_owners=0), 'num_owners'), (dict(min_owners=6), 'num_owners'),
    (dict(bound=-1.0), 'bound'), (dict(num_servers=1), 'num_servers'),
    (dict(value_bits=11), 'need numbers of 12 bits'),
    (dict(noise_variance=10**18), 'need numbers of 35 bits'),
    (dict(length=2**21), 'length must be smaller')])
def test_bad_parameters_are_refused(kwargs, message):
  with pytest.raises(ValueError, match=message):
    parameters(**kwargs)
