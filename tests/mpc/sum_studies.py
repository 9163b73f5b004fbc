"""Provides a study of sums in a folder, with servers and owners on threads."""

import secrets
import threading

import numpy as np

from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import setup
from dpjax.mpc.parties import sum_client
from dpjax.mpc.parties import sum_owners
from dpjax.mpc.parties import sum_server
from dpjax.mpc.parties.sum_parameters import SumParameters
from tests.mpc.studies import eventually

VECTORS = np.array([[0.5, -0.25, 0.0], [-0.75, 0.0, 0.5], [0.0, 1.0, 0.0],
                    [0.25, 0.25, -0.25], [-1.0, 0.0, 0.0]])


def parameters(**kwargs):
  return SumParameters(**dict(
      session=secrets.token_hex(16), num_servers=2, num_owners=5, min_owners=0,
      length=3, bound=1.0, granularity_bits=8, value_bits=32, noise_variance=0,
      num_rounds=4) | kwargs)


def scaled(number, message):
  """Returns the owners' vectors, divided by the number in the message."""
  del number
  return VECTORS / float(message)


class SumStudy:
  """A study of sums with all its servers; `owners` starts the relays."""

  def __init__(self, folder, params, *, timeout=5.0, num_relays=1):
    self.folder, self.params, self.timeout = folder, params, timeout
    setup.create_parties(folder, params, {}, num_relays)
    self.servers = [self.start(j) for j in range(params.num_servers)]
    self.reports, self._threads = {}, []

  def start(self, index, params=None):
    name = self.params.servers[index]
    one = sum_server.SumServer(
        self.folder / name, self.folder / 'addresses', index,
        params or self.params, timeout=self.timeout)
    one.start()
    return one

  @property
  def places(self):
    return dict(addresses=self.folder / 'addresses', timeout=self.timeout)

  def take_part(self, relay='owners0', vectors=scaled, **kwargs):
    held = setup.owners(self.folder, relay)
    own = held['owners']
    report = sum_owners.take_part(
        lambda number, message: vectors(number, message)[own],
        list(held['tokens']),
        **dict(first_owner=int(own[0]), parameters=self.params, name=relay,
               folder=self.folder / relay, **self.places) | kwargs)
    self.reports[relay] = report

  def owners(self, **kwargs):
    """Starts all relays on threads; `kwargs` as for `take_part`."""
    for relay in setup.relays(self.folder):
      thread = threading.Thread(target=self.take_part, args=(relay,),
                                kwargs=kwargs, daemon=True)
      thread.start()
      self._threads.append(thread)

  def finish(self, client):
    client.finish()
    for thread in self._threads:
      thread.join(self.timeout)
      assert not thread.is_alive()

  def await_messages(self, *counts):
    """Waits until the servers hold messages of so many owners."""
    eventually(lambda: [int(one._round.inbox.accepted.sum())
                        for one in self.servers] == list(counts))

  def client(self, params=None):
    return sum_client.SumClient(params or self.params,
                                folder=self.folder / 'client', **self.places)

  def call(self, index, name):
    return channel.call(
        self.servers[index].address,
        certificates.context(self.folder / name, server=False),
        peer=self.params.servers[index], name=name,
        session=self.params.session, timeout=self.timeout)

  def refused(self, index):
    return {(one['party'], one['reason']): one['times']
            for one in self.servers[index].refusals.to_json()}

  def stop(self):
    for one in self.servers:
      one.stop()
