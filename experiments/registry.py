"""Registry of the experiments; each is imported when it is asked for by name.

An experiment is a folder of this package, with three modules.

sweep.py defines
  SETTINGS, SMOKE   tuples of instances of one frozen dataclass
  PAPERS            names of the papers that the experiment is about
and, if needed,
  TAGS              tag -> predicate or tuple of settings; the tag `quick` has
                    settings (of SMOKE then) that take seconds together; it
                    leaves out some, and is not needed if none takes longer
  BATCHED           names of fields whose settings run together
  ARTEFACT          table, figure or theorem that is reproduced
  COST              hours, and on which device
  HEADLINES         beginnings of the claims whose verdicts are in the README;
                    default all
  REPRODUCE         tag of the settings that a computer without a GPU runs in
                    hours
  TIMES             metrics that measure time and differ in every run
  PACKAGES          further packages whose versions may affect the rows
  ALONE             True if timings need an otherwise idle machine
  OLDER             reason -> predicate, for settings whose committed rows are
                    kept although the present code may give other rows
  QUICK_IS_SMOKE    True if no setting of SETTINGS takes only seconds
  GALLERY           caption of the figure, if the README shows it
  KEEPS_STATE       True if `run` resumes from files of its own
run.py defines
  run(settings, data_dir, progress) -> iterator of (setting, rows); with
                    KEEPS_STATE it also takes state_dir, a folder of its own
  config(setting)   the `TrainingConfig` behind the rows, or None; needed where
                    `training.train` is used
report.py defines table(rows), verdict(rows) and, optionally, figure(rows) and
documents(rows), which returns name -> text of further files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import importlib
import pathlib
from typing import Any, NamedTuple

from dpjax import errors
from experiments import records
from experiments import selection
from experiments.catalogue import items

# `experiments/benchmarks` has modules of the same names, and other rows.
EXPERIMENTS = {
    path.parent.name: f'experiments.{path.parent.name}'
    for path in sorted(pathlib.Path(__file__).parent.glob('*/sweep.py'))
    if path.parent.name != 'benchmarks'}
"""Name of an experiment -> its package; every folder with a `sweep.py`."""

PAPERS = {name: what for name, what in items.PAPERS.items()
          if name != 'beyond'}
"""Number of a paper -> its citation."""

Results = Iterator[tuple[selection.Setting, list[records.Row]]]
Run = Callable[..., Results]


class Experiment(NamedTuple):
  """An experiment, ready to be run or reported.

  Attributes:
    name: first part of its ids.
    settings: settings of the whole sweep.
    smoke: small settings of the same type, done in seconds.
    tags: tag -> predicate or tuple of settings.
    batched: fields in which settings that run together may differ.
    artefact: table, figure or theorem that is reproduced, with its paper.
    cost: hours, and on which device.
    run: (settings of one group, data_dir, progress) -> iterator of (setting,
      rows), each yielded when it is finished.
    headlines: beginnings of the claims whose verdicts are in the README.
    report: module with table, verdict and perhaps figure.
    keeps_state: True if `run` takes a folder of files to resume from.
    papers: names of the papers that it is about, from `PAPERS`.
    reproduce: tag of the settings that a reproduction runs; None for all.
    quick_is_smoke: True if a quick reproduction uses the smoke sweep.
    times: metrics that measure time and differ in every run.
    packages: further packages whose versions may affect the rows.
    alone: True if timings need an otherwise idle machine.
    gallery: caption of its figure in the README; '' if it is not there.
    config: setting -> the training configuration behind its rows, or None.
    older: reason -> predicate of settings whose committed rows may be of older
      code.
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
  packages: tuple[str, ...] = ()
  alone: bool = False
  gallery: str = ''
  config: Callable[[selection.Setting], Any] = lambda setting: None
  older: Mapping[str, Callable[[selection.Setting], bool]] = {}


def with_new_rows(experiment: Experiment) -> Experiment:
  """Returns the experiment without OLDER, for rows of the present code."""
  return experiment._replace(older={})


def _lazy_run(path: str) -> Run:
  """Returns a `run` that imports its module when it is first called."""
  def run(settings, data_dir, progress, **state):
    # This import loads JAX; listing and reporting do without it.
    module = importlib.import_module(f'{path}.run')
    return module.run(settings, data_dir, progress, **state)
  return run


def _lazy_config(path: str) -> Callable[[selection.Setting], Any]:
  """Returns a `config` that imports its module when it is first called."""
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
  """Imports an experiment by its name, and checks its sweep.

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
      packages=tuple(getattr(sweep, 'PACKAGES', ())),
      alone=getattr(sweep, 'ALONE', False),
      gallery=getattr(sweep, 'GALLERY', ''),
      config=_lazy_config(path), older=dict(getattr(sweep, 'OLDER', {})))
