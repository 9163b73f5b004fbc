"""Provides a study in a folder, with its servers on threads."""

import secrets
import time

import numpy as np

from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import client
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import server
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.parameters import Parameters

BINS = np.array([0, 3, 3, 7, 9, 1, 3, 9, 8, 0, 2, 9, 4])
LABELS = np.arange(13) % 2


def parameters(**kwargs):
  return Parameters(**dict(
      session=secrets.token_hex(16), scheme='comparison', num_servers=2,
      num_colluding=1, num_classes=1, num_thresholds=10, lower=0.0, upper=1.0,
      grid='uniform', epsilon=1.0, adjacency='replace_one', sensitivity=4,
      root=True, shape=(),
      noise='contributions' if 'scheme' in kwargs else 'joint',
      value_bits=32, num_owners=13, min_owners=0) | kwargs)


def no_noise(index, params, mesh, toss, dealt):
  """Returns sharings of zero, so that tests get exact counts."""
  del toss, dealt
  return noising.reshare(index, params, mesh, np.zeros(
      (params.num_classes, noising.num_released(params)), np.int64))


class Study:
  """A study in a folder, with its servers on threads."""

  def __init__(self, folder, params, *, noise=no_noise, timeout=5.0,
               labels=None, server_parameters=()):
    self.folder, self.params, self.timeout = folder, params, timeout
    self.noise = noise
    setup.create(folder, params, np.resize(BINS, params.num_owners), labels)
    said = dict(server_parameters)
    self.servers = [self.start(j, said.get(j, params))
                    for j in range(params.num_servers)]

  def start(self, index, params=None):
    name = self.params.servers[index]
    one = server.Server(
        self.folder / name, self.folder / 'addresses', index,
        params or self.params, timeout=self.timeout, noise=self.noise)
    one.start()
    return one

  def restart(self):
    for one in self.servers:
      one.stop()
    self.servers = [self.start(j) for j in range(self.params.num_servers)]

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
        **dict(first_owner=0, parameters=self.params, name='owners0',
               folder=self.folder / 'owners0', **self._places) | kwargs)

  def deal(self):
    return owners.deal(self.params, folder=self.folder / 'dealer',
                       **self._places)

  def ask(self, points=None, params=None):
    return client.ask(params or self.params, points,
                      folder=self.folder / 'client', **self._places)

  def call(self, index, name, folder=None):
    return channel.call(
        self.servers[index].address,
        certificates.context(folder or self.folder / name, server=False),
        peer=self.params.servers[index], name=name, session=self.params.session,
        timeout=self.timeout)

  def refused(self, index):
    return {(one['party'], one['reason']): one['times']
            for one in self.servers[index].refusals.to_json()}


def eventually(holds):
  """Waits until `holds()`, since servers log a refusal after sending it."""
  deadline = time.monotonic() + 5
  while not holds():
    assert time.monotonic() < deadline
    time.sleep(.01)


def exact(bins, num_thresholds=10):
  return np.cumsum(np.bincount(bins, minlength=num_thresholds))
