"""The auditors that are compared on the zoo, behind one function each.

The two of dpjax get the space of legal data sets and search it. The others get
one pair of neighbours that shows the fault, because they do not search or
search numbers only; this favours them.
"""

from collections.abc import Callable, Sequence
import importlib
import time
from typing import NamedTuple

from dpjax import errors
from dpjax.audit import auditor
from dpjax.typing import PRNGKey
from experiments.audit_zoo import bug

SIGNIFICANCE = 0.05
"""Probability, of each auditor, that it refutes a true claim."""
NUM_RUNS = auditor.NUM_RUNS
"""Releases of each data set that decide a verdict."""
NUM_PILOT = NUM_RUNS // 4
"""Further releases of each data set, to choose what is tested."""


class Result(NamedTuple):
  """What an auditor finds in one release of the zoo.

  Attributes:
    found: whether it refutes the claim; None if it could not run.
    epsilon_lower: its lower bound on epsilon; None if it gives none.
    what: the check, or the line of code, that refutes the claim; what it
      suspects if it refutes nothing; the reason if it could not run.
    seconds: time of the audit, with its releases and its compilation.
  """
  found: bool | None
  epsilon_lower: float | None = None
  what: str = ''
  seconds: float = 0.0


Auditor = Callable[[PRNGKey, bug.Bug, bool], Result]
"""(key, bug, whether to audit the fixed twin) -> what was found."""


class Listed(NamedTuple):
  """An auditor of the comparison.

  Attributes:
    title: how tables name it.
    module: module that defines it.
    function: name of its function, an `Auditor`.
    missing: name of the function of `module` that returns which package is
      missing, or None; '' for what is part of dpjax.
  """
  title: str
  module: str
  function: str
  missing: str = ''


_HERE, _PEERS = 'experiments.audit_zoo.auditors', 'experiments.audit_zoo.peers'
AUDITORS = {
    'dpjax_black_box': Listed('dpjax black box', _HERE, 'black_box'),
    'dpjax_replay': Listed('dpjax record and replay', _HERE, 'replay'),
    'dp_auditorium': Listed('dp-auditorium', _PEERS, 'dp_auditorium',
                            'no_dp_auditorium'),
    'jax_privacy': Listed('jax_privacy auditing', _PEERS, 'jax_privacy',
                          'no_jax_privacy'),
    'statdp': Listed('StatDP', _PEERS, 'statdp', 'no_statdp')}
"""Name of an auditor -> where it is defined."""
OWN = ('dpjax_black_box', 'dpjax_replay')
"""The auditors of dpjax."""


def names(chosen: Sequence[str] = ()) -> tuple[str, ...]:
  """Returns names of auditors, all by default; raises if one is unknown."""
  return tuple(errors.check_choice('an auditor', name, AUDITORS)
               for name in chosen or AUDITORS)


def missing(name: str) -> str | None:
  """Returns what has to be installed for an auditor; None if nothing."""
  listed = AUDITORS[name]
  if not listed.missing:
    return None
  module = importlib.import_module(listed.module)
  return getattr(module, listed.missing)()


def run(name: str, key: PRNGKey, item: bug.Bug, fixed: bool) -> Result:
  """Runs an auditor by its name on a twin, and takes the time.

  An error of the auditor is a result: it could not run on this release.
  """
  listed = AUDITORS[name]
  audit: Auditor = getattr(importlib.import_module(listed.module),
                           listed.function)
  start = time.perf_counter()
  try:
    result = audit(key, item, fixed)
  except Exception as error:  # Each package has its own.
    result = Result(None, what=f'{type(error).__name__}: '
                    f'{errors.one_line(error)}'[:200])
  return result._replace(seconds=time.perf_counter() - start)


def black_box(key: PRNGKey, item: bug.Bug, fixed: bool) -> Result:
  """Runs the black-box audit of dpjax, which searches neighbours and events."""
  # Record and replay is another auditor of the comparison.
  report = auditor.audit(key, item.target(fixed), significance=SIGNIFICANCE,
                         replayed=False)
  return Result(report.verdict == auditor.VIOLATED, report.epsilon_lower,
                ', '.join(dict.fromkeys(c.name for c in report.failed)))


def replay(key: PRNGKey, item: bug.Bug, fixed: bool) -> Result:
  """Runs record and replay, which compares what is noised with the claim."""
  # Imported here, so that the other auditors do not wait for it.
  from dpjax.audit import replay as record_and_replay
  result = record_and_replay.audit(key, item.target(fixed))
  # What is suspect is worth a look, but it refutes nothing.
  noted = result.findings or result.suspects
  what = f'{noted[0].line}: {noted[0].what}' if noted else ''
  return Result(result.violated, what=what if result.violated or not what
                else f'suspects {what}')
