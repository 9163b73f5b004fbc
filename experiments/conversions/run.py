"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from experiments import records
from experiments import rows
from experiments.conversions import sweep
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.theory import compared_notions
from experiments.methods.theory import printed_guarantees

_ADD = Adjacency.ADD_OR_REMOVE_ONE
_ORDERS = 1 + np.geomspace(1e-3, 1e4, 4001)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.kind)
    metrics = {'zcdp': _zcdp, 'pure': _pure}[setting.kind](setting)
    yield setting, rows.exact(setting, metrics)


def _zcdp(setting: sweep.Setting) -> dict[str, float]:
  """Returns epsilons of rho-zCDP, and the rho implied by the closed form."""
  guarantee, delta = ZCDP(rho=setting.parameter), setting.delta
  basic = notions.approx_from_zcdp(guarantee, delta=delta)
  at_orders = [renyi_steps.renyi_from_zcdp(guarantee, order=order)
               for order in _ORDERS]
  return dict(
      closed_form=basic.epsilon,
      one_order=min(printed_guarantees.approx_from_renyi_printed(
          at_order, delta=delta).epsilon for at_order in at_orders),
      accountant=accounting.epsilon(
          accounting.concentrated_event(rho=guarantee.rho, adjacency=_ADD),
          delta=delta, adjacency=_ADD, accountant='rdp'),
      gaussian=accounting.gaussian_epsilon(
          shift=math.sqrt(2 * guarantee.rho), delta=delta),
      rho_back=notions.zcdp_from_approx_target(basic).rho)


def _pure(setting: sweep.Setting) -> dict[str, float]:
  """Returns rho bounds of epsilon-DP, and the largest divergence over order."""
  guarantee = PureDP(epsilon=setting.parameter)
  values = {name: notions.zcdp_from_mechanism(guarantee, name).rho
           for name in ('laplace', 'geometric', 'exponential')}
  orders = _ORDERS[::20]
  curves = {
      'response': lambda order: renyi_steps.randomized_response(
          epsilon=guarantee.epsilon, order=order),
      'laplace': lambda order: renyi_steps.laplace(epsilon=guarantee.epsilon,
                                             order=order)}
  return values | {
      'closed_form': printed_guarantees.zcdp_from_pure_printed(guarantee).rho,
      'tight': notions.zcdp_from_pure(guarantee).rho,
      'response_5': compared_notions.zcdp_from_response(guarantee, 5).rho,
      **{f'measured_{name}': printed_guarantees.rho_of_curve(
          list(map(curve, orders)))
         for name, curve in curves.items()}}
