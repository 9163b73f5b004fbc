"""Names of the experiments; a module is imported when its name is asked for.

An experiment is a package with
  sweep.py   SETTINGS and SMOKE, tuples of one frozen dataclass, and PAPERS,
             names of the papers that it is about; and, where of use, TAGS:
             tag -> predicate or tuple of settings, BATCHED: names of the
             fields whose settings are run together, ARTEFACT: what of which
             paper it is about, COST: hours on which device, HEADLINES: how
             claims begin whose verdicts belong in the README (all),
             REPRODUCE: tag of what a computer without a GPU does in hours,
             TIMES: names of metrics that no two runs share, ALONE: whether
             nothing else may run meanwhile, OLDER: reason -> predicate, for
             settings whose committed rows are kept although the present code
             may give others, QUICK_IS_SMOKE: whether no real
             setting takes seconds, GALLERY: what its figure shows, if it is one
             of those in the README. The tag `quick` has settings, of SMOKE
             then, that take seconds together, where all of them take longer.
  run.py     run(settings, data_dir, progress) -> iterator of (setting, rows);
             with KEEPS_STATE in sweep.py also state_dir, a folder of its own.
             Where `training.train` is used also config(setting), the
             `TrainingConfig` that its rows come from, or None.
  report.py  table(rows), verdict(rows) and, where of use, figure(rows).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import importlib
from typing import Any, NamedTuple

from dpjax import errors
from dpjax.report import records
from experiments import selection
from experiments.catalogue import items

EXPERIMENTS = {
    'bernoulli_risk': 'experiments.bernoulli_risk',
    'clipping_bias': 'experiments.clipping_bias',
    'composition_curves': 'experiments.composition_curves',
    'constant_records': 'experiments.constant_records',
    'conversions': 'experiments.conversions',
    'density_adaptive': 'experiments.density_adaptive',
    'density_bounds': 'experiments.density_bounds',
    'density_crossover': 'experiments.density_crossover',
    'density_draws': 'experiments.density_draws',
    'density_histograms': 'experiments.density_histograms',
    'density_marginals': 'experiments.density_marginals',
    'density_packings': 'experiments.density_packings',
    'density_post_processing': 'experiments.density_post_processing',
    'density_rates': 'experiments.density_rates',
    'density_relaxation': 'experiments.density_relaxation',
    'density_sensitivities': 'experiments.density_sensitivities',
    'density_stress': 'experiments.density_stress',
    'density_table': 'experiments.density_table',
    'ecdf_inverse': 'experiments.ecdf_inverse',
    'ecdf_mechanisms': 'experiments.ecdf_mechanisms',
    'ecdf_smoothing': 'experiments.ecdf_smoothing',
    'effective_privacy': 'experiments.effective_privacy',
    'finite_distributions': 'experiments.finite_distributions',
    'gaussian_calibration': 'experiments.gaussian_calibration',
    'hosmer_lemeshow': 'experiments.hosmer_lemeshow',
    'lip_depth': 'experiments.lip_depth',
    'lip_images': 'experiments.lip_images',
    'lip_runtime': 'experiments.lip_runtime',
    'lip_search': 'experiments.lip_search',
    'lip_tabular': 'experiments.lip_tabular',
    'local_histograms': 'experiments.local_histograms',
    'local_queries': 'experiments.local_queries',
    'mia_sparsity': 'experiments.mia_sparsity',
    'mpc_communication': 'experiments.mpc_communication',
    'polls': 'experiments.polls',
    'price_definitions': 'experiments.price_definitions',
    'price_dimension': 'experiments.price_dimension',
    'price_histograms': 'experiments.price_histograms',
    'price_intervals': 'experiments.price_intervals',
    'price_likelihood': 'experiments.price_likelihood',
    'price_moments': 'experiments.price_moments',
    'price_proportion': 'experiments.price_proportion',
    'price_samples': 'experiments.price_samples',
    'price_support': 'experiments.price_support',
    'price_table': 'experiments.price_table',
    'quantile_atoms': 'experiments.quantile_atoms',
    'quantile_beta': 'experiments.quantile_beta',
    'quantile_bounds': 'experiments.quantile_bounds',
    'quantile_distributions': 'experiments.quantile_distributions',
    'quantile_rates': 'experiments.quantile_rates',
    'roc_curves': 'experiments.roc_curves',
    'smoothing_time': 'experiments.smoothing_time',
    'sparsity_layers': 'experiments.sparsity_layers',
    'support_estimators': 'experiments.support_estimators',
    'unsound': 'experiments.unsound',
}

PAPERS = {name: what for name, what in items.PAPERS.items()
          if name != 'beyond'}
"""The papers: name -> what it is."""

Results = Iterator[tuple[selection.Setting, list[records.Row]]]
Run = Callable[..., Results]


class Experiment(NamedTuple):
  """An experiment, ready to be run or reported.

  Attributes:
    name: first part of its ids.
    settings: the whole sweep.
    smoke: the same kind of settings, done in seconds.
    tags: name -> which settings.
    batched: fields in which settings that are run together may differ.
    artefact: what of which paper it is about.
    cost: hours on which device.
    run: (settings of one group, data_dir, progress) -> (setting, rows) of
      each, as they are finished.
    headlines: how the claims begin whose verdicts are in the README.
    report: module with table, verdict and maybe figure.
    keeps_state: whether `run` takes a folder for what it goes on from.
    papers: names of the papers that it is about, of `PAPERS`.
    reproduce: tag of what is run to reproduce it; None for all settings.
    quick_is_smoke: whether the smoke sweep stands in for real settings where
      seconds have to do.
    times: metrics that measure time, which no two runs share.
    alone: whether its rows are spoilt by what runs beside it.
    gallery: what its figure shows; '' if it is not in the README.
    config: setting -> the training that decides on its rows; None if none.
    older: reason -> which settings have rows of older code, and may.
  """
  name: str
  settings: tuple[selection.Setting, ...]
  smoke: tuple[selection.Setting, ...]
  tags: Mapping[str, selection.Tag]
  batched: tuple[str, ...]
  artefact: str
  cost: str
  run: Run
  headlines: tuple[str, ...]
  report: Any
  keeps_state: bool = False
  papers: tuple[str, ...] = ()
  reproduce: str | None = None
  quick_is_smoke: bool = False
  times: tuple[str, ...] = ()
  alone: bool = False
  gallery: str = ''
  config: Callable[[selection.Setting], Any] = lambda setting: None
  older: Mapping[str, Callable[[selection.Setting], bool]] = {}


def with_new_rows(experiment: Experiment) -> Experiment:
  """Returns the experiment for rows of the present code: OLDER is of others."""
  return experiment._replace(older={})


def _lazy_run(path: str) -> Run:
  def run(settings, data_dir, progress, **state):
    # JAX comes in here only: to list or to report needs none.
    module = importlib.import_module(f'{path}.run')
    return module.run(settings, data_dir, progress, **state)
  return run


def _lazy_config(path: str) -> Callable[[selection.Setting], Any]:
  def config(setting):
    module = importlib.import_module(f'{path}.run')
    return module.config(setting) if hasattr(module, 'config') else None
  return config


def _papers(name: str, papers: Sequence[str]) -> tuple[str, ...]:
  if not papers:
    raise ValueError(f'{name}: PAPERS must name at least one paper')
  return tuple(errors.check_choice(f'{name}: a name in PAPERS', paper, PAPERS)
               for paper in papers)


def load(name: str) -> Experiment:
  """Imports an experiment by name.

  Raises:
    ValueError: no experiment has this name, or its sweep is not usable.
  """
  if name not in EXPERIMENTS:
    raise ValueError(f'no experiment {name!r}; there is '
                     f'{", ".join(sorted(EXPERIMENTS))}'
                     f'{errors.did_you_mean(name, EXPERIMENTS)}')
  path = EXPERIMENTS[name]
  sweep = importlib.import_module(f'{path}.sweep')
  batched = tuple(getattr(sweep, 'BATCHED', ()))
  return Experiment(
      name=name,
      settings=selection.check(name, sweep.SETTINGS, batched),
      smoke=selection.check(name, sweep.SMOKE, batched),
      tags=dict(getattr(sweep, 'TAGS', {})),
      batched=batched,
      artefact=getattr(sweep, 'ARTEFACT', name),
      cost=getattr(sweep, 'COST', '-'),
      run=_lazy_run(path),
      headlines=tuple(getattr(sweep, 'HEADLINES', ('',))),
      report=importlib.import_module(f'{path}.report'),
      keeps_state=getattr(sweep, 'KEEPS_STATE', False),
      papers=_papers(name, getattr(sweep, 'PAPERS', ())),
      reproduce=getattr(sweep, 'REPRODUCE', None),
      quick_is_smoke=getattr(sweep, 'QUICK_IS_SMOKE', False),
      times=tuple(getattr(sweep, 'TIMES', ())),
      alone=getattr(sweep, 'ALONE', False),
      gallery=getattr(sweep, 'GALLERY', ''),
      config=_lazy_config(path), older=dict(getattr(sweep, 'OLDER', {})))
