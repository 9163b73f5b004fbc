"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from experiments import records
from experiments import rows
from experiments.composition_curves import sweep
from experiments.methods.theory import composition

_ADD = Adjacency.ADD_OR_REMOVE_ONE


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), 'composition')
    yield setting, rows.exact(setting, _bounds(setting))


def _bounds(setting: sweep.Setting) -> dict[str, float]:
  """Returns the epsilons of all composition bounds at one total delta."""
  one = ApproxDP(epsilon=setting.epsilon, delta=setting.release_delta)
  releases = [one] * setting.num_uses
  forms = composition.heterogeneous_forms(releases, slack=setting.slack)
  values = dict(
      basic=forms.basic, with_constant=forms.with_constant,
      without_constant=forms.without_constant,
      advanced=composition.advanced(one, num_uses=setting.num_uses,
                                    slack=setting.slack).epsilon,
      exact=accounting.optimal_composition(releases, delta=forms.delta))
  return values if setting.release_delta else values | _of_mechanisms(setting)


def _of_mechanisms(setting: sweep.Setting) -> dict[str, float]:
  """Returns the tighter bounds for pure mechanisms, and for two of them."""
  pure = PureDP(epsilon=setting.epsilon)

  def concentrated(guarantee):
    return accounting.concentrated_event(rho=guarantee.rho, adjacency=_ADD)

  events = {
      'zcdp': (concentrated(notions.zcdp_from_pure(pure)), 'rdp'),
      'laplace': (accounting.laplace_event(
          noise_multiplier=1 / setting.epsilon), 'pld'),
      'exponential': (concentrated(notions.zcdp_from_mechanism(
          pure, 'exponential')), 'rdp')}
  return {name: accounting.epsilon(
      accounting.repeated_event(event, setting.num_uses), delta=setting.slack,
      adjacency=_ADD, accountant=accountant)
          for name, (event, accountant) in events.items()}
