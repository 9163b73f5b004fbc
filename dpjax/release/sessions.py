"""Releases from Python: a ledger, and one method for each statistic.

`Ledger` makes the same checks, draws the same noise and keeps the same file as
the command `dpjax estimate`. Each can continue a ledger of the other; for
columns in memory, under the same name of the data set (`dataset`).

  ledger = Ledger('survey.ledger', budget=2, adjacency='replace_one')
  released = ledger.mean(table['age'], lower=18, upper=100, epsilon=0.5)
  released['value'], released['interval']
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import inspect
import os
import pathlib
from typing import Any

from dpjax import errors
from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger as ledgers
from dpjax.release import meter as meters
from dpjax.release import parameters
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import sources
from dpjax.release.costs import Cost
from dpjax.release.parameters import Number
from dpjax.release.query import AnyPlan
from dpjax.release.query import PARAMETERS
from dpjax.release.query import Query
from dpjax.release.query import Statistic
from dpjax.tables.columns import listed
from dpjax.tables.formats import Format

_NEIGHBOURS = {
    Adjacency.ADD_OR_REMOVE_ONE: 'files of which one has one record more',
    Adjacency.REPLACE_ONE: 'files of equal, public size that differ in one '
                           'record'}


class Ledger:
  """The privacy budget of a data set, kept in a file, and releases on it.

  Every statistic of `registry.STATISTICS` is a method, such as
  `ledger.mean(column, lower=, upper=, epsilon=)`; `release` takes the name as
  an argument. Parameters are those of `query.Query`; all are public.

  A release costs epsilon of the budget, even if it fails after its noise was
  drawn. One that exceeds the budget is refused before the records are read.
  The same query of the same file costs nothing again; of columns in memory it
  is paid again.
  """

  def __init__(self, path: str | os.PathLike[str], *,
               adjacency: Adjacency | str, budget: Number | None = None,
               budget_delta: Number = 0, dataset: str | None = None):
    """Names the file of a ledger; the first release creates it.

    Args:
      path: path of the ledger. Its answers and secrets are in folders beside
        it.
      adjacency: which data sets are neighbours, 'replace_one' or
        'add_or_remove_one'.
      budget: epsilon of all releases together; None if the ledger exists.
      budget_delta: delta of all releases together; 0 admits pure releases only.
      dataset: name of the data set whose versions share this budget. None
        stands for one file, whose answers are repeated at no cost. For columns
        in memory the default is the name of the ledger.

    Raises:
      ValueError: for an adjacency or a budget that is not allowed.
    """
    self.path = str(path)
    self.adjacency = parameters.adjacency('adjacency', adjacency)
    self.dataset = dataset
    self.budget = None if budget is None else ledgers.Budget(
        epsilon=parameters.fraction('budget', budget),
        delta=parameters.fraction('budget_delta', budget_delta))

  def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
    """Returns the method that releases the statistic of this name."""
    if name not in registry.STATISTICS:
      raise AttributeError(f'Ledger has no statistic {name!r}'
                           f'{errors.did_you_mean(name, registry.STATISTICS)}')

    def method(*columns: Any, **values: Any) -> dict[str, Any]:
      return self.release(name, *columns, **values)

    method.__name__ = name
    method.__doc__, signature = _described(registry.STATISTICS[name])
    setattr(method, '__signature__', signature)  # For `inspect` and `help`.
    return method

  def __dir__(self) -> Iterable[str]:
    """Lists all methods, with one for each statistic."""
    return sorted({*super().__dir__(), *registry.STATISTICS})

  def release(self, statistic: str, *columns: Any, epsilon: Number,
              delta: Number | None = None,
              confidence: Number = Query.confidence,
              form: Format | None = None, **values: Any) -> dict[str, Any]:
    """Releases one statistic, and pays for it.

    Args:
      statistic: a name of `registry.STATISTICS`.
      *columns: the records: one column in memory, two (scores and labels), or
        the path of a file, whose columns `column` and `label` name.
      epsilon: cost of the release; a float stands for its shortest decimal.
      delta: None for pure differential privacy with discrete Laplace noise,
        else in [1e-12, 1) with discrete Gaussian noise.
      confidence: level of the intervals.
      form: how a file is written, and what counts as missing; None for a CSV
        file with commas and decimal points.
      **values: other parameters of `query.Query`, such as lower and upper.

    Returns:
      What may be published: the value, its interval, the guarantee, the noise
      and all public parameters; the JSON of `dpjax estimate` as a dict.

    Raises:
      ValueError: for wrong parameters, for too small a budget, and for records
        that cannot be read as declared. Nothing is spent then.
    """
    source, names = _source(columns, statistic, values, form or Format())
    query = registry.query_of(
        statistic, adjacency=self.adjacency, epsilon=epsilon, delta=delta,
        confidence=confidence, **names, **values)
    dataset = self.dataset
    # Columns may be another version at each call, and a repeated answer would
    # reveal that they are not. With a name, every call pays.
    if dataset is None and isinstance(source, sources.Columns):
      dataset = pathlib.Path(self.path).stem
    return release(query, source, ledger=self.path, budget=self.budget,
                   dataset=dataset)

  def spent(self) -> dict[str, object]:
    """Returns what the ledger has spent and has left; {} if there is none."""
    if not pathlib.Path(self.path).exists():
      return {}
    return ledgers.read(self.path).summary()


def _described(statistic: Statistic) -> tuple[str, inspect.Signature]:
  """Returns the docstring and the signature of the method of a statistic."""
  # Columns in memory are arguments, and give their names.
  needed = ['epsilon', *(name for name in statistic.needs
                         if name not in ('column', 'label'))]
  names = [*needed, *(name for name in statistic.needs if name not in needed),
           *statistic.takes, 'delta', 'confidence']
  described = parameters.described({name: PARAMETERS[name] for name in names})
  doc = '\n'.join([
      f'Releases {statistic.help}.', '', 'Args:',
      '  *columns: the records: columns in memory, or the path of a file.',
      *described,
      '  form: how a file is written, and what counts as missing.', '',
      'Returns:', '  What may be published, see `Ledger.release`.'])
  keyword, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
  return doc, inspect.Signature([
      inspect.Parameter('columns', inspect.Parameter.VAR_POSITIONAL),
      *(inspect.Parameter(name, keyword, default=empty if name in needed else
                          PARAMETERS[name].default) for name in names),
      inspect.Parameter('form', keyword, default=None)])


def release(query: Query, source: sources.Source, *, ledger: str,
            budget: ledgers.Budget | None, dataset: str | None,
            note: Callable[[str], None] = lambda text: None,
            before: Callable[[], None] = lambda: None,
            below: exact.Draw | None = None) -> dict[str, Any]:
  """Answers a query, in the order that `reservations` states.

  Args:
    query: the statistic and its public parameters.
    source: the records.
    ledger: path of the ledger.
    budget: total budget, to create a ledger if there is none.
    dataset: name of a data set in all its versions, or None for one file.
    note: called with a message when an answer is repeated, or an interrupted
      release is finished; both messages are as public as the ledger.
    before: further checks, made before the ledger is opened.
    below: randomness for tests; None for the secret of the ledger's entry.

  Returns:
    The release JSON as a dict.

  Raises:
    ValueError: for a query that cannot be answered; nothing is spent then.
  """
  plan = registry.plan(query)
  before()
  guarantee = guarantee_of(query, plan.cost)
  meters.check_guarantee(guarantee, plan.cost)
  asked = {'query': plan.asked.to_json(), **source.form.to_json()}
  with reservations.held(ledger, dataset=dataset, budget=budget,
                         adjacency=query.adjacency) as held:
    # Before the records are opened: a refusal must not depend on them.
    held.check(asked, plan.cost)
    with source.opened() as (sha256, measure):
      held.check_data(sha256)
      known = held.answer(asked)
      if known is not None:
        note('answered before: no budget is spent')
        return _viewed(query, plan, known)
      # A file that cannot be read fails here, before it has cost anything.
      measured = measure(query, plan)
    # Paid on disk before noise is drawn, so that no crash gives a free draw.
    reserved = held.reserve(asked, plan.cost, sha256)
    if reserved.resumed:
      note(f'release {reserved.entry.number} was interrupted and is finished '
           'now: no further budget is spent')
    with held.drawing(reserved.entry):
      meters.check_guarantee(guarantee, plan.cost, reserved.entry.cost)
      meter = meters.Meter(reserved.entry.cost, below or reserved.below)
      drawn = plan.draw(measured, meter)
      meter.check_spent()
      answer = {
          'statistic': plan.asked.statistic, **drawn, 'guarantee': guarantee,
          'parameters': _public(plan.asked), 'format': source.form.to_json(),
          **plan.facts(), 'ledger': reserved.account.summary()}
      # On disk before anybody sees it: the same query then repeats this answer.
      answer = held.commit(reserved.entry, answer)
  return _viewed(query, plan, answer)


def guarantee_of(query: Query, cost: Cost) -> dict[str, object]:
  """Returns the printed guarantee; `meter.check_guarantee` checks it."""
  guarantee: dict[str, object] = {'notion': 'epsilon-DP',
                                  'epsilon': str(query.epsilon)}
  if query.delta is not None:
    by = 'rho-zCDP' if cost.notion == 'rho-zCDP' else 'Renyi-DP'
    guarantee = {'notion': f'(epsilon, delta)-DP, by {by}',
                 'epsilon': str(query.epsilon), 'delta': str(query.delta)}
    if cost.rho is not None:
      guarantee['rho'] = float(cost.rho)
  return {**guarantee, 'adjacency': query.adjacency.value,
          'neighbours': _NEIGHBOURS[query.adjacency],
          'event': str(cost.event(query.adjacency))}


def _public(query: Query) -> dict[str, object]:
  """Returns the parameters that were given, for the release JSON."""
  return {name: value for name, value in query.to_json().items()
          if value not in (None, []) and name not in
          ('adjacency', 'epsilon', 'delta', 'statistic')}


def _viewed(query: Query, plan: AnyPlan,
            answer: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the released answer in the form that the query asks for."""
  view = plan.view(answer)
  if not view:
    return dict(answer)
  return {'statistic': query.statistic, **view,
          **{name: value for name, value in answer.items() if name not in
             ('statistic', 'noisy_counts')},
          'parameters': _public(query), 'noisy_counts': answer['noisy_counts']}


def _source(columns: Sequence[Any], statistic: str,
            values: Mapping[str, Any], form: Format
            ) -> tuple[sources.Source, dict[str, str]]:
  """Returns the records that a call gives, and the names of its columns."""
  if len(columns) == 1 and isinstance(columns[0], (str, os.PathLike)):
    return sources.File(str(columns[0]), form), {}
  known = registry.STATISTICS.get(statistic)  # An unknown one is refused later.
  roles: list[str] = [] if known is None else [
      role for role in ('column', 'label') if role in known.needs]
  if len(columns) == 1 and not roles and not {'lower', 'upper'} & {*values}:
    return sources.Columns((), len(listed(columns[0])), form), {}
  roles = roles or ['column']
  if len(columns) != len(roles):
    raise ValueError(f'{statistic} takes {len(roles)} columns in memory or the '
                     f'path of a file, got {len(columns)} columns')
  names = {role: str(getattr(column, 'name', None) or role)
           for role, column in zip(roles, columns, strict=True)
           if role not in values}
  return sources.Columns(tuple(columns), form=form), names
