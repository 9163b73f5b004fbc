"""Provides events that tests of accountants share, and their costs."""

from dp_accounting import dp_event as dp_events

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
INTERVAL = 1e-4  # The grid on which the PLD accountant rounds losses up.


def poisson(q, z, steps):
  """Returns the event of Gaussian noise on Poisson subsamples."""
  return accounting.poisson_gaussian_event(
      sampling_prob=q, noise_multiplier=z, num_steps=steps)


def spend(event, adjacency=ADD, accountant='pld', delta=1e-5):
  """Returns the epsilon of an event."""
  return accounting.epsilon(event, delta=delta, adjacency=adjacency,
                            accountant=accountant)


def random_response(noise_parameter=.5, num_buckets=2):
  """Returns the event of one randomised response."""
  return dp_events.RandomizedResponseDpEvent(noise_parameter, num_buckets)
