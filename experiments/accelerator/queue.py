"""What is done, what is left, and what to run next."""

from collections.abc import Collection, Sequence
import json
import pathlib
from typing import Any, NamedTuple

from dpjax.report import files
from dpjax.report import tables
from experiments import engine
from experiments import provenance
from experiments import records
from experiments.accelerator import costs
from experiments.accelerator import jobs

# A unit that was stopped is expected to take so much longer than it had.
_LONGER = 1.5
# A unit that goes on from a checkpoint still evaluates and stores its rows.
_LEAST_SECONDS = 60.0


class Places(NamedTuple):
  """Folders of a queue.

  Attributes:
    checkout: folder with the committed rows.
    output: folder of the new rows, in the layout of a checkout.
    state: folder of checkpoints, compiled programs and the journal.
    data_dir: folder of the data sets; None for the default.
  """
  checkout: pathlib.Path
  output: pathlib.Path
  state: pathlib.Path
  data_dir: str | None = None

  def rows(self, job: jobs.Job) -> pathlib.Path:
    """Returns the folder of the new rows of a job."""
    return self.output / job.rows_folder

  def state_of(self, job: jobs.Job) -> pathlib.Path:
    """Returns the folder of the checkpoints of a job."""
    return self.state / job.name


class Journal:
  """Runs and faults of unfinished units, in a file of the state folder.

  The file is written while a unit runs, so that a killed lease counts, too.
  """

  def __init__(self, state: pathlib.Path):
    """Reads the journal of a state folder, or begins an empty one."""
    self._path = state / 'journal.json'
    try:
      self._content = dict(json.loads(self._path.read_text()))
    except (OSError, ValueError, TypeError):
      self._content = {}

  def spent(self, unit: jobs.Unit) -> tuple[float, float]:
    """Returns the seconds of all runs of a unit, and of the longest one."""
    runs = self._of(unit)['seconds']
    return sum(runs), max(runs, default=0.0)

  def faults(self, unit: jobs.Unit) -> int:
    """Returns how many runs of a unit ended in a fault."""
    count: int = self._of(unit)['faults']
    return count

  def begin(self, unit: jobs.Unit) -> None:
    """Begins a run of a unit."""
    self._content[unit.name] = self._of(unit)
    self._content[unit.name]['seconds'].append(0.0)

  def update(self, unit: jobs.Unit, seconds: float) -> None:
    """Stores the seconds of the run that has begun."""
    self._content[unit.name]['seconds'][-1] = round(seconds, 1)
    self._write()

  def add_fault(self, unit: jobs.Unit) -> None:
    """Counts the last run of a unit as a fault."""
    self._content[unit.name]['faults'] += 1
    self._write()

  def forget(self, unit: jobs.Unit) -> None:
    """Removes a unit, which is finished."""
    self._content.pop(unit.name, None)
    self._write()

  def _of(self, unit: jobs.Unit) -> dict[str, Any]:
    return self._content.get(unit.name) or {'seconds': [], 'faults': 0}

  def _write(self) -> None:
    files.replace(self._path, json.dumps(self._content, indent=1).encode())


class Entry(NamedTuple):
  """A unit in the queue.

  Attributes:
    unit: the unit.
    left: number of its settings without rows.
    seconds: expected seconds until all of them have rows.
    spent: seconds that it has run without finishing.
    source: where the expected seconds come from.
    faults: number of its runs that ended in a fault.
  """
  unit: jobs.Unit
  left: int
  seconds: float
  spent: float
  source: str
  faults: int = 0


def read_rows(places: Places, job: jobs.Job) -> list[records.Row]:
  """Returns the rows of a job, committed ones and new ones."""
  rows: dict[str, list[records.Row]] = {}
  for folder in (places.checkout, places.output):
    path = folder / job.rows_folder / engine.ROWS
    by_id: dict[str, list[records.Row]] = {}
    for row in records.read(path) if path.exists() else []:
      by_id.setdefault(row.id, []).append(row)
    rows = by_id | rows
  return [row for each in rows.values() for row in each]


def entries(chosen: Sequence[jobs.Job], places: Places,
            journal: Journal) -> list[Entry]:
  """Returns all units of some jobs, also finished ones, in their order."""
  result = []
  for job in chosen:
    rows = read_rows(places, job)
    finished = records.ids(rows)
    cost = costs.of(job, rows, places.checkout)
    for unit in jobs.units(job)[0]:
      left = [setting for setting, id_ in zip(unit.settings, unit.ids,
                                              strict=True)
              if id_ not in finished]
      spent, longest = journal.spent(unit)
      seconds = sum(map(cost.seconds, left))
      if job.checkpoints:
        seconds = max(min(_LEAST_SECONDS, seconds), seconds - spent)
      else:
        seconds = max(seconds, _LONGER * longest)
      result.append(Entry(
          unit, len(left), job.start_seconds + seconds if left else 0.0,
          spent, cost.source, journal.faults(unit)))
  return result


def choose(queue: Sequence[Entry], seconds: float,
           refused: Collection[str] = ()) -> Entry | None:
  """Returns the first unit that can be run in the time left, or None.

  A unit must be expected to end, unless it has checkpoints; then it must have
  the time to start. Units that ended in a fault come last.

  Args:
    queue: all units, the most important first.
    seconds: time left.
    refused: names of units and jobs that are not run any more.
  """
  for entry in sorted(queue, key=lambda entry: entry.faults > 0):
    job = entry.unit.job
    needed = min(entry.seconds, 2 * job.start_seconds if job.checkpoints
                 else entry.seconds)
    if (entry.left and needed <= seconds and entry.unit.name not in refused
        and job.name not in refused):
      return entry
  return None


def add_committed(places: Places, job: jobs.Job) -> None:
  """Copies committed rows to the output, where new rows join them.

  The file of the output can then be copied over the committed one.
  """
  committed = places.checkout / job.rows_folder
  folder = places.rows(job)
  folder.mkdir(parents=True, exist_ok=True)
  if (job.smoke or not (committed / engine.ROWS).exists()
      or folder.samefile(committed)):
    return
  records.merge(folder / engine.ROWS, committed / engine.ROWS)
  provenance.merge(folder / provenance.NAME, committed / provenance.NAME)


def size_of(folder: pathlib.Path) -> int:
  """Returns the bytes of all files in a folder, 0 if there is none."""
  return sum(path.stat().st_size for path in folder.rglob('*')
             if path.is_file())


def table(queue: Sequence[Entry], places: Places) -> str:
  """Returns a table of the jobs: what is done, what is left, for how long."""
  lines = []
  for job in dict.fromkeys(entry.unit.job for entry in queue):
    own = [entry for entry in queue if entry.unit.job == job]
    waiting = [entry for entry in own if entry.left]
    left = sum(entry.left for entry in own)
    lines.append((
        job.name, job.about,
        sum(len(entry.unit.settings) for entry in own) - left, left,
        f'{len(waiting)} of {len(own)}',
        f'{sum(entry.seconds for entry in waiting) / 60:,.0f}',
        f'{min((entry.seconds for entry in waiting), default=0) / 60:,.1f}',
        own[0].source, 'yes' if job.checkpoints else 'no',
        f'{sum(entry.spent for entry in own) / 60:,.0f}',
        f'{size_of(places.state_of(job)) / 1e6:,.0f}'))
  return tables.markdown(
      ('job', 'what', 'settings done', 'left', 'units left',
       'expected minutes', 'of the shortest unit', 'expected from',
       'checkpoints', 'minutes spent on unfinished units',
       'MB of checkpoints'), lines)
