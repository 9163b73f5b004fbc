r"""A private distribution function from parties of which none sees the records.

Servers, owners, a dealer and a client, as processes that talk over TLS on this
machine.

A demonstration, of 10,000 synthetic owners and two servers:
  python -m launch.mpc --demo=10000 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --output=curve.json --plot=curve.svg

Three ages of a survey, by three servers of which one may be curious:
  python -m launch.mpc --input=survey.csv --column=age --lower=0 --upper=120 \
    --num_thresholds=120 --thresholds=18,40,65 --epsilon=0.5 --servers=3 \
    --scheme=outer_product --adjacency=replace_one --output=ages.json

What happens when a server is killed, and how the study goes on:
  python -m launch.mpc --demo=1000 --lower=0 --upper=1 --epsilon=1 \
    --adjacency=replace_one --output=curve.json --study=here --fault=kill_server
  python -m launch.mpc --output=curve.json --study=here --resume

Who is trusted with what. An owner splits its bin among the servers. Servers
that put together what they see, as many as may collude (of `comparison` and
`additive` all but one, of `outer_product` --colluding), learn who took part and
what is released, if they follow the protocol. Noise `joint` (two servers) is
the curator's, and known to nobody; a dealer gives out keys for it, and must not
collude with a server. Of noise by `contributions` each server draws a part:
those that do not collude draw enough, the rest comes on top. The client learns
noisy counts. Relays carry messages of owners, learn nothing and can change
nothing. Whoever sets a study up (this command) could play any party, and is
trusted not to; here one machine plays them all, which is a rehearsal: nobody is
protected from it.

One study is one release: noise is drawn once and kept, so that any thresholds,
asked any number of times, cost epsilon in all. The same data in another study
are another release.
"""

from collections.abc import Sequence
import contextlib
import hashlib
import json
import math
import pathlib
import secrets
import tempfile
import time

from absl import flags
import numpy as np

from dpjax.mpc import costs
from dpjax.mpc import schemes
from dpjax.mpc.parties import client
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import setup
from dpjax.mpc.parties.parameters import NOISES, Parameters
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import formats
from dpjax.release import tables
from dpjax.report import files
from dpjax.stats.ecdf import grids
from launch import errors
from launch import mpc_parties as parties

# JAX and SciPy are imported inside functions: servers do without.

flags.declare_key_flag('traceback')

_INPUT = flags.DEFINE_string(
    'input', None, 'CSV with a header, plain or .csv.gz, or Parquet.')
_COLUMN = flags.DEFINE_string('column', None, 'Column of numbers.')
_LABEL = flags.DEFINE_string(
    'label', None, 'Column of labels 0 and 1, which stay hidden: a curve for '
    'each, and the area under the ROC curve.')
_DEMO = flags.DEFINE_integer(
    'demo', None, 'So many synthetic owners instead of a file.', 1)
_LOWER = flags.DEFINE_float('lower', None, 'Public bound of the values.')
_UPPER = flags.DEFINE_float('upper', None, 'Public bound; the last threshold.')
_GRID = flags.DEFINE_enum('grid', 'uniform', grids.KINDS, 'Of thresholds.')
_N = flags.DEFINE_integer('num_thresholds', 1024, 'Of the public grid, N.', 2)
_THRESHOLDS = flags.DEFINE_list(
    'thresholds', [], 'Numbers; the curve is asked at the next threshold from '
    'each on. Default: the whole curve.')
_EPSILON = flags.DEFINE_float('epsilon', None, 'Of the whole curve.')
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', None, [one.value for one in Adjacency], 'Which data sets are '
    'neighbours. With replace_one it is public who took part; otherwise it is '
    'known to the servers, and public who was enrolled: the rows of the file.')
_SCHEME = flags.DEFINE_enum('scheme', 'comparison', sorted(schemes.SCHEMES),
                            'How owners split their records.')
_SERVERS = flags.DEFINE_integer('servers', 2, 'How many.', 2)
_COLLUDING = flags.DEFINE_integer(
    'colluding', 1, 'Of outer_product: how many servers may collude, less than '
    'half of them.', 1)
_NOISE = flags.DEFINE_enum(
    'noise', None, NOISES, 'How noise is drawn. Default: joint with comparison '
    'keys, contributions otherwise.')
_BITS = flags.DEFINE_integer('value_bits', 32, 'k: counts are modulo 2^k.', 2)
_MIN_OWNERS = flags.DEFINE_integer(
    'min_owners', 0, 'Fewer are not evaluated; with replace_one only.', 0)
_RELAYS = flags.DEFINE_integer('relays', 1, 'Processes that play owners.', 1)
_STUDY = flags.DEFINE_string(
    'study', None, 'Folder of the study, with keys; kept for --resume. '
    'Default: one that is removed.')
_RESUME = flags.DEFINE_bool(
    'resume', False, 'Start the servers of --study again, and ask.')
_FAULT = flags.DEFINE_enum(
    'fault', '', ['', *parties.FAULTS], 'What goes wrong, to see it found: ' +
    '; '.join(f'{name}: {text}' for name, text in parties.FAULTS.items()))
_OUTPUT = flags.DEFINE_string('output', None, 'JSON file of the release.')
_PLOT = flags.DEFINE_string('plot', None, 'Figure of the curve, .svg.')
_TIMEOUT = flags.DEFINE_float(
    'timeout', 30.0, 'Seconds after which a silent party is at fault.')
_NODES = flags.DEFINE_enum(
    'nodes', None, ['dyadic', 'tree'], 'What has noise: dyadic nodes, of which '
    'each threshold has a few, as in the thesis; or counts of a tree that are '
    'told together, with a sixth of the squared error at N = 1024. Default: '
    'tree, and dyadic with --thresholds.')
_ROLE = flags.DEFINE_enum(
    'role', 'all', ['all', 'server', 'relay', 'dealer'], 'One party of a study '
    'that is set up; all of them by default.')
_INDEX = flags.DEFINE_integer('index', 0, 'Of the server or relay.', 0)


def _column(name: str) -> np.ndarray:
  with open(_INPUT.value, 'rb') as file, contextlib.closing(tables.read(
      _INPUT.value, file, name, numeric=True, gaps=False)) as fields:
    try:
      return np.array([float(field) for field in fields])
    except formats.FileError as error:
      raise ValueError(f'{error.fault}: every owner has one number, so put '
                       'another file together first') from None


def _data() -> tuple[np.ndarray, np.ndarray | None]:
  """Values of owners, and labels if there are."""
  if (_DEMO.value is None) == (_INPUT.value is None):
    raise ValueError('--input or --demo must be given, one of them')
  if _DEMO.value is not None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, _DEMO.value) if _LABEL.value else None
    shares = rng.beta(2.0, 5.0 if labels is None else 6.0 - 3 * labels,
                      _DEMO.value)
    return _LOWER.value + (_UPPER.value - _LOWER.value) * shares, labels
  if not _COLUMN.value:
    raise ValueError('--column must be given')
  labels = _column(_LABEL.value) if _LABEL.value else None
  if labels is not None and not np.isin(labels, [0, 1]).all():
    raise ValueError(f'column {_LABEL.value} must be of labels 0 and 1')
  return _column(_COLUMN.value), (None if labels is None else
                                  labels.astype(np.int64))


def _noisy(adjacency: Adjacency, num_classes: int
           ) -> tuple[tuple[int, ...], tuple[int, bool]]:
  """The shape of a tree or (), and how far a record moves all nodes."""
  from dpjax.stats.ecdf import hierarchy
  from launch import mpc_answers

  nodes = _NODES.value or ('dyadic' if _THRESHOLDS.value else 'tree')
  if nodes == 'dyadic':
    return (), mpc_answers.sensitivity(_N.value, adjacency, num_classes)
  known = adjacency is Adjacency.REPLACE_ONE
  shape = hierarchy.best_shape(_N.value, known=known, pure=True)
  # A record is counted once on each level, in one class.
  return shape, (len(shape) * (1 + known), False)


def _set_up(study: pathlib.Path) -> Parameters:
  """Makes the study of the flags."""
  for flag in (_LOWER, _UPPER, _EPSILON, _ADJACENCY):
    if flag.value is None:
      raise ValueError(f'--{flag.name} must be given')
  if _SCHEME.value != 'outer_product' and _COLLUDING.present:
    raise ValueError('--colluding is for outer_product: of the others all '
                     'servers but one may collude')
  grid = grids.Grid(lower=_LOWER.value, upper=_UPPER.value, kind=_GRID.value,
                    num_thresholds=_N.value)
  values, labels = _data()
  classes = 1 if labels is None else 2
  shape, (price, root) = _noisy(Adjacency(_ADJACENCY.value), classes)
  told = Parameters(
      session=secrets.token_hex(16), scheme=_SCHEME.value,
      num_servers=_SERVERS.value, num_classes=classes,
      num_colluding=_COLLUDING.value if _SCHEME.value == 'outer_product' else
      _SERVERS.value - 1, num_thresholds=_N.value, lower=_LOWER.value,
      upper=_UPPER.value, grid=_GRID.value, epsilon=_EPSILON.value,
      adjacency=_ADJACENCY.value, sensitivity=price, root=root,
      shape=shape,
      noise=_NOISE.value or (
          'joint' if _SCHEME.value == 'comparison' else 'contributions'),
      value_bits=_BITS.value, num_owners=len(values),
      min_owners=_MIN_OWNERS.value)
  costs.check_width(told.build_scheme(), len(values),
                    math.sqrt(noising.told_variance(told)))
  setup.create(study, told, grid.bins(values), labels, _RELAYS.value)
  return told


def _collect(study: pathlib.Path, told: Parameters,
             running: parties.Processes) -> list[str]:
  """Owners and the dealer send; returns what went wrong with them."""
  faulty = _FAULT.value not in ('', 'kill_server', 'kill_owners', 'parameters')
  relays = setup.relays(study)
  for index, name in enumerate(relays):
    running.start(name, 'relay', f'--index={index}', *(
        [f'--fault={_FAULT.value}'] if faulty and index == 0 else []))
  if told.noise == 'joint':
    running.start('dealer', 'dealer')
  if _FAULT.value == 'kill_owners':
    parties.until_some_are_there(study, told, _TIMEOUT.value)
    running.kill(relays[0])
  wrong = [running.wait(name) for name in relays]
  if told.noise == 'joint':
    wrong.append(running.wait('dealer'))
  return [text for text in wrong if text]


def _ask(study: pathlib.Path, told: Parameters, wrong: list[str],
         seconds: dict[str, float]) -> dict[str, object]:
  from launch import mpc_answers

  points = None
  if _THRESHOLDS.value:
    try:
      values = np.array([float(text) for text in _THRESHOLDS.value])
    except ValueError:
      raise ValueError('--thresholds must be numbers') from None
    points = np.unique(mpc_answers.grid_of(told).bins(values)).astype(np.int64)
  start = time.monotonic()
  asked = None if told.shape else points  # a tree is told as a whole
  answer = client.ask(told, asked, folder=study / 'client',
                      addresses=study / 'addresses',
                      timeout=10 * _TIMEOUT.value)
  seconds['client'] = time.monotonic() - start
  start = time.monotonic()
  curve = mpc_answers.curve(told, points, answer)
  seconds['smoothing'] = time.monotonic() - start
  reports = {name: parties.report_of(study, name) for name in told.servers}
  refused = {name: seen.get('refused', []) for name, seen in reports.items()}
  found = {
      **curve, 'guarantee': mpc_answers.guarantee(told),
      'parameters': json.loads(told.to_bytes()),
      'faults': [*wrong, *answer.faults]}
  if not told.knows_total:
    # Refusals, bytes and seconds tell how many took part.
    return found
  return {
      **found, 'refused': refused,
      'bits': mpc_answers.bits(
          told, study, None if asked is None else asked.size, answer),
      'seconds': {**seconds, **{name: seen.get('seconds')
                                for name, seen in reports.items()}}}


def _run(study: pathlib.Path) -> dict[str, object]:
  """Plays the study; `Fault` of whoever keeps it from ending."""
  seconds, wrong, start = {}, [], time.monotonic()
  told = setup.read(study) if _RESUME.value else _set_up(study)
  seconds['setup'] = time.monotonic() - start
  with parties.Processes(study, _TIMEOUT.value) as running:
    start = time.monotonic()
    running.start_servers(told, _FAULT.value)
    seconds['start'] = time.monotonic() - start
    start = time.monotonic()
    if not _RESUME.value:
      wrong = _collect(study, told, running)
    seconds['owners'] = time.monotonic() - start
    if _FAULT.value == 'kill_server':
      running.kill(told.servers[-1])
    found = _ask(study, told, wrong, seconds)
  return found


def _draw(found: dict[str, object], path: str, digest: str) -> None:
  from dpjax.report import plots
  drawn, axes = plots.new(height=3.4)
  ax, x = axes[0][0], found['thresholds']
  for label, lines in (('noisy', 'noisy_ranks'), ('smoothed', 'ranks')):
    for number, line in enumerate(found.get(lines, [])):
      ax.step(x, line, where='post', label=label if len(
          found[lines]) == 1 else f'{label}, class {number}', linewidth=1.0)
  ax.set_xlabel('threshold')
  ax.set_ylabel('records up to it')
  ax.legend()
  plots.save(drawn, path, digest=digest)


def main(argv: Sequence[str]) -> int:
  """Does what the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  errors.check_extra('cryptography', 'mpc', 'several parties')
  if _ROLE.value != 'all':
    study = pathlib.Path(_STUDY.value or '')
    if _ROLE.value == 'server':
      return parties.serve(study, _INDEX.value, _TIMEOUT.value, _EPSILON.value)
    if _ROLE.value == 'relay':
      return parties.relay(study, f'owners{_INDEX.value}', _TIMEOUT.value,
                           _FAULT.value)
    return parties.deal(study, _TIMEOUT.value)
  if not _OUTPUT.value:
    raise ValueError('--output must be given')
  errors.check_outputs(
      {'output': _OUTPUT.value, 'plot': _PLOT.value},
      inputs={'input': _INPUT.value},
      kept={'--study': _STUDY.value} if _STUDY.value else {})
  errors.check_file(_OUTPUT.value)
  if _PLOT.value:
    errors.check_figure(_PLOT.value)
  if _RESUME.value and not _STUDY.value:
    raise ValueError('--resume needs --study')
  with tempfile.TemporaryDirectory() as scratch:
    found = _run(pathlib.Path(_STUDY.value or f'{scratch}/study').resolve())
  text = json.dumps(found, indent=1, allow_nan=False).encode() + b'\n'
  files.replace(_OUTPUT.value, text)
  if _PLOT.value:
    _draw(found, _PLOT.value, hashlib.sha256(text).hexdigest())
  return _tell(found)


def _tell(found: dict[str, object]) -> int:
  guarantee = found['guarantee']
  print(f'{len(found["thresholds"])} thresholds, epsilon '
        f'{guarantee["epsilon"]:g}, {guarantee["adjacency"]}, standard '
        f'deviation {guarantee["standard_deviation"]:.4g}')
  if 'num_records' in found:
    print(f'{found["num_records"]} of {found["parameters"]["num_owners"]} '
          'owners')
  for name, refused in found.get('refused', {}).items():
    for one in refused:
      print(f'{name} refused {one["party"]}, {one["times"]} times: '
            f'{one["reason"]}')
  for text in found['faults']:
    print(f'at fault: {text}')
  return 0


if __name__ == '__main__':
  errors.run_main(main)
