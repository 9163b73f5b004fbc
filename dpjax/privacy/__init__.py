"""Privacy definitions, accounting and mechanisms; no models, no files.

Modules, in import order: notions, adjacency, neighbours, divergences, tradeoff,
renyi, losses, restating, sampled_events, accounting, strategies, tree_strategy,
correlated, optimistic, blocks, mechanism, threefry, chacha, keys, additive,
sharded, draws, exact, stopping, tuning, laplace, selection, ordering, inverse,
smooth, k_norm, local, integers, discrete, lattice, langevin.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.privacy.accounting import (
    calibrate_noise_multiplier as calibrate_noise_multiplier,
  )
  from dpjax.privacy.accounting import composed_event as composed_event
  from dpjax.privacy.accounting import concentrated_event as concentrated_event
  from dpjax.privacy.accounting import delta_for as delta_for
  from dpjax.privacy.accounting import epsilon as epsilon
  from dpjax.privacy.accounting import gaussian_event as gaussian_event
  from dpjax.privacy.accounting import poisson_event as poisson_event
  from dpjax.privacy.accounting import (
    poisson_gaussian_event as poisson_gaussian_event,
  )
  from dpjax.privacy.accounting import pure_event as pure_event
  from dpjax.privacy.accounting import repeated_event as repeated_event
  from dpjax.privacy.additive import calibrated_gaussian as calibrated_gaussian
  from dpjax.privacy.additive import GaussianMechanism as GaussianMechanism
  from dpjax.privacy.adjacency import Adjacency as Adjacency
  from dpjax.privacy.blocks import (
    joint_noise_multiplier as joint_noise_multiplier,
  )
  from dpjax.privacy.discrete import (
    DiscreteGaussianMechanism as DiscreteGaussianMechanism,
  )
  from dpjax.privacy.discrete import GeometricMechanism as GeometricMechanism
  from dpjax.privacy.inverse import (
    InverseSensitivityQuantile as InverseSensitivityQuantile,
  )
  from dpjax.privacy.k_norm import KNormMechanism as KNormMechanism
  from dpjax.privacy.keys import system_keys as system_keys
  from dpjax.privacy.langevin import LangevinDescent as LangevinDescent
  from dpjax.privacy.laplace import LaplaceMechanism as LaplaceMechanism
  from dpjax.privacy.local import RandomizedResponse as RandomizedResponse
  from dpjax.privacy.local import UnaryEncoding as UnaryEncoding
  from dpjax.privacy.mechanism import compose as compose
  from dpjax.privacy.mechanism import Mechanism as Mechanism
  from dpjax.privacy.notions import ApproxDP as ApproxDP
  from dpjax.privacy.notions import GaussianPrivacy as GaussianPrivacy
  from dpjax.privacy.notions import PureDP as PureDP
  from dpjax.privacy.notions import ZCDP as ZCDP
  from dpjax.privacy.selection import (
    ExponentialMechanism as ExponentialMechanism,
  )
  from dpjax.privacy.selection import PermuteAndFlip as PermuteAndFlip
  from dpjax.privacy.smooth import (
    SmoothSensitivityQuantile as SmoothSensitivityQuantile,
  )
  from dpjax.privacy.stopping import RandomStopping as RandomStopping

__all__ = [
    'Adjacency', 'ApproxDP', 'DiscreteGaussianMechanism',
    'ExponentialMechanism', 'GaussianMechanism', 'GaussianPrivacy',
    'GeometricMechanism', 'InverseSensitivityQuantile', 'KNormMechanism',
    'LangevinDescent', 'LaplaceMechanism', 'Mechanism', 'PermuteAndFlip',
    'PureDP', 'RandomStopping', 'RandomizedResponse',
    'SmoothSensitivityQuantile', 'UnaryEncoding', 'ZCDP',
    'calibrate_noise_multiplier', 'calibrated_gaussian', 'compose',
    'composed_event', 'concentrated_event', 'delta_for', 'epsilon',
    'gaussian_event', 'joint_noise_multiplier', 'poisson_event',
    'poisson_gaussian_event', 'pure_event', 'repeated_event', 'system_keys'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'calibrate_noise_multiplier': 'accounting',
      'composed_event': 'accounting', 'concentrated_event': 'accounting',
      'delta_for': 'accounting', 'epsilon': 'accounting',
      'gaussian_event': 'accounting', 'poisson_event': 'accounting',
      'poisson_gaussian_event': 'accounting', 'pure_event': 'accounting',
      'repeated_event': 'accounting', 'GaussianMechanism': 'additive',
      'calibrated_gaussian': 'additive', 'Adjacency': 'adjacency',
      'joint_noise_multiplier': 'blocks',
      'DiscreteGaussianMechanism': 'discrete', 'GeometricMechanism': 'discrete',
      'InverseSensitivityQuantile': 'inverse', 'KNormMechanism': 'k_norm',
      'system_keys': 'keys', 'LangevinDescent': 'langevin',
      'LaplaceMechanism': 'laplace', 'RandomizedResponse': 'local',
      'UnaryEncoding': 'local', 'Mechanism': 'mechanism',
      'compose': 'mechanism', 'ApproxDP': 'notions',
      'GaussianPrivacy': 'notions', 'PureDP': 'notions', 'ZCDP': 'notions',
      'ExponentialMechanism': 'selection', 'PermuteAndFlip': 'selection',
      'SmoothSensitivityQuantile': 'smooth', 'RandomStopping': 'stopping'})
