"""Tests the zoo: its bugs are whole, dpjax finds them, and no repair is blamed.
"""

import collections
import dataclasses
import math
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import spaces
from dpjax.audit import target
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from experiments import rows
from experiments import selection
from experiments import verdicts
from experiments.audit_zoo import auditors
from experiments.audit_zoo import bug
from experiments.audit_zoo import main
from experiments.audit_zoo import misses
from experiments.audit_zoo import pages
from experiments.audit_zoo import registry
from experiments.audit_zoo import report
from experiments.audit_zoo import run
from experiments.audit_zoo import samples
from experiments.audit_zoo import sweep

_KEY = jax.random.key(3)
_QUICK = 'exponential_rate'
_MINE = '''
import dataclasses
from experiments.audit_zoo.bugs import exponential_rate

BUG = dataclasses.replace(exponential_rate.BUG, name='mine'{change})
'''


@pytest.fixture(autouse=True)
def _usual_types():
  """Lets types and ranks be promoted, as in the programs of users."""
  with (jax.numpy_dtype_promotion('standard'),
        jax.numpy_rank_promotion('allow')):
    yield


def _mine(folder, change=''):
  """Writes a bug of a user, and returns the path of its file."""
  path = folder / 'mine.py'
  path.write_text(_MINE.format(change=change))
  return str(path)


def test_each_file_is_a_bug():
  folder = pathlib.Path(registry.__file__).parent / 'bugs'
  files = {path.stem for path in folder.glob('[!_]*.py')}
  assert set(registry.names()) == files and _QUICK in files
  assert list(registry.names()) == sorted(files)


def test_a_bug_in_a_file_of_ones_own(tmp_path):
  item = registry.load(_mine(tmp_path))
  assert item.name == 'mine' and item.claim.epsilon == 1


def test_refuses_what_is_no_bug(tmp_path):
  path = tmp_path / 'mine.py'
  for text, message in (('', 'no BUG'), (_MINE.format(change=''), None),
                        (_MINE.replace("'mine'", "'other'").format(change=''),
                         "name 'other'")):
    path.write_text(text)
    if message:
      with pytest.raises(ValueError, match=message):
        registry.load(str(path))
  with pytest.raises(ValueError, match="did you mean 'exponential_rate'"):
    registry.load('exponential_rat')
  with pytest.raises(ValueError, match='not a Python file'):
    registry.load(str(tmp_path / 'absent.py'))


def test_refuses_a_bug_that_contradicts_itself():
  item = registry.load(_QUICK)
  for change, message in (
      (dict(true_epsilon=0.5), 'does not exceed'), (dict(title=' '), 'title'),
      (dict(space=spaces.Records(adjacency=Adjacency.ADD_OR_REMOVE_ONE)),
       'adjacencies')):
    with pytest.raises(ValueError, match=message):
      dataclasses.replace(item, **change)


def _why_not_legal(item):
  """Returns why the worst pair is not one of legal neighbours, or ''."""
  space = item.space
  one, other = map(np.asarray, item.worst.records or item.worst[:2])
  if isinstance(space, spaces.Sums):
    moved = np.linalg.norm(np.ravel(one - other), space.order)
    return '' if moved <= space.sensitivity * (1 + 1e-6) else 'too far apart'
  if isinstance(space, spaces.Scores):
    change = one - other
    if space.monotone and change.min() < 0 < change.max():
      return 'not monotone'
    largest = np.abs(change).max()
    return '' if largest <= space.sensitivity * (1 + 1e-6) else 'too far apart'
  counts = [collections.Counter(np.asarray(record).tobytes() for record in data)
            for data in (one, other)]
  more, fewer = counts[0] - counts[1], counts[1] - counts[0]
  wanted = ((1, 1) if item.claim.adjacency is Adjacency.REPLACE_ONE
            else (1, 0))
  if sorted((more.total(), fewer.total()), reverse=True) != list(wanted):
    return 'no neighbours'
  low, high = -math.inf, math.inf
  if isinstance(space, spaces.Records):
    low, high = space.bounds or (low, high)
    if space.num_categories is not None:
      low, high = 0, space.num_categories - 1
  # Not-a-number is legal where there are no bounds.
  out = any(np.any((data < low) | (data > high)) for data in (one, other))
  return 'records out of bounds' if out else ''


def test_pairs_that_are_no_neighbours_are_noticed():
  """Planted faults of the check of the next test."""
  sums = registry.load('laplace_float32')
  scores = registry.load(_QUICK)
  for item, one, other, why in (
      (sums, [1.0, 1.0], [], 'no neighbours'), (sums, [1.0], [0.5],
                                                'no neighbours'),
      (sums, [2.0], [], 'records out of bounds'), (sums, [1.0], [], ''),
      (scores, [1.5, 0, 0], [0, 0, 0], 'too far apart'),
      (scores, [1, -1, 0], [0, 0, 0], '')):
    pair = Pair(np.float32(one), np.float32(other))
    assert _why_not_legal(dataclasses.replace(item, worst=pair)) == why


@pytest.mark.every(4)
@pytest.mark.parametrize('name', registry.names())
def test_a_bug_is_whole(name):
  """Source, claim and both twins are there, and the worst pair is legal."""
  item = registry.load(name)
  assert item.title.endswith('.') and item.title[0].isupper()
  assert re.search(r'https://|\(\d{4}[,)]', item.source) and item.worst.what
  assert math.isfinite(item.claim.epsilon)
  assert not _why_not_legal(item)
  for twin in bug.TWINS:
    assert item.target(twin == bug.FIXED).pairs
    assert len({_shapes(item, twin, data) for data in item.worst[:2]}) == 1


def _shapes(item, twin, data):
  """Returns the shapes of one release, which is run without compilation."""
  with jax.enable_x64(item.double_precision):
    output = item.release(twin)(_KEY, target.arrays(data))
    return tuple(np.shape(leaf) for leaf in jax.tree.leaves(output))


def test_a_bug_is_found_and_its_repair_is_not():
  item = registry.load(_QUICK)
  faulty, fixed = (auditors.run('dpjax_black_box', _KEY, item, twin)
                   for twin in (False, True))
  assert faulty.found and 'event' in faulty.what
  assert item.claim.epsilon < faulty.epsilon_lower <= item.true_epsilon
  assert fixed.found is False and not fixed.what and fixed.seconds > 0


def test_an_auditor_that_cannot_run_is_no_verdict():
  item = registry.load(_QUICK)

  def broken(key, data):
    raise RuntimeError('out of order')

  item = dataclasses.replace(item, faulty=broken)
  result = auditors.run('dpjax_black_box', _KEY, item, False)
  assert result.found is None and result.what == 'RuntimeError: out of order'


def _rows(setting, metrics):
  return selection.named('audit_zoo', setting, rows.exact(setting, metrics))


def _made_up(*, fixed=0.0, refuted=1.0):
  """Returns rows of one bug, audited by dpjax and by another auditor."""
  lines = []
  for setting in sweep.audits([_QUICK], ('dpjax_black_box', 'statdp')):
    faulty = setting.twin == 'faulty'
    lines += _rows(setting, {'seconds': 2.0, 'note: of no use': 1.0}
                   if setting.auditor == 'statdp' else
                   {'seconds': 3.0, 'found': 1.0 if faulty else fixed,
                    'epsilon_lower': 1.5, 'note: an event': 1.0})
  for setting in sweep.alarms([_QUICK]):
    lines += _rows(setting, {'audits': 1000.0, 'refuted': refuted,
                             'significance': 0.05})
  return lines


def test_the_report_says_what_the_rows_say():
  text = report.table(_made_up())
  assert 'found, >= 1.5, 3 s' in text and 'of no use' in text
  assert '- Black box: found by an event' in text and 'McSherry' in text
  judged = verdicts.check(report.verdict(_made_up()))
  assert {each.verdict for each in judged} == {verdicts.AGREES}


@pytest.mark.parametrize('fault', [dict(fixed=1.0), dict(refuted=60.0)])
def test_the_report_shows_false_alarms(fault):
  lines = _made_up(**fault)
  judged = verdicts.check(report.verdict(lines))
  assert [each.verdict for each in judged].count(verdicts.DIFFERS) == 1
  assert ('REFUTES' in report.table(lines)) == ('fixed' in fault)


def test_the_sweep_gives_its_rows():
  # Two audits of the repair, at a thirtieth of the runs of the default.
  settings = [setting for setting in sweep.SMOKE if setting.kind == 'alarms']
  for setting, lines in run.run(settings, None, lambda done, note: None):
    metrics = {row.metric: row.value for row in lines}
    assert setting.method == 'dpjax_black_box'
    assert metrics == dict(audits=2, refuted=0, significance=0.05)


def _status(*words):
  """Returns the exit status of the command for these words."""
  return main.main(main.parse(['launch.audit', '--zoo', *words]))


@pytest.mark.every(6)
def test_the_command_tells_what_is_found(tmp_path, capsys):
  own = '--zoo_auditors=dpjax_black_box'
  assert _status(f'--zoo_bug={_QUICK}', own) == 0
  out = capsys.readouterr().out
  assert f'{_QUICK}, dpjax_black_box: found' in out and '1 of 1' in out
  # Not a bug at all: the release keeps its claim.
  path = _mine(tmp_path, ', faulty=exponential_rate.fixed')
  assert _status(f'--zoo_bug={path}', own) == 1
  assert 'mine: not found' in capsys.readouterr().out
  # Nor a repair: both releases break the claim.
  path = _mine(tmp_path, ', fixed=exponential_rate.faulty')
  assert _status(f'--zoo_bug={path}', own) == 1
  assert 'refutes the fixed twin' in capsys.readouterr().out


def test_refuses_an_auditor_that_is_absent(monkeypatch):
  monkeypatch.setattr(auditors, 'missing', lambda name: f'{name}: get it')
  with pytest.raises(ValueError, match='statdp: get it'):
    _status(f'--zoo_bug={_QUICK}', '--zoo_auditors=statdp')
  with pytest.raises(ValueError, match='must be one of'):
    _status('--zoo_auditors=stat')
  with pytest.raises(ValueError, match='--tag=own'):
    list(run.run(sweep.audits([_QUICK], ['statdp']), None, print))


def _planted(shift, noise):
  """Returns a bug that shifts Laplace noise by `shift`, for a claim of 1."""
  release = lambda key, data: (
      shift * jnp.sum(data) + noise * jax.random.laplace(key, (2,)))
  return dataclasses.replace(
      registry.load('laplace_float32'), faulty=release,
      fixed=lambda key, data: jax.random.laplace(key, (2,)))


def test_samples_are_finite_and_tell_sides_apart():
  odd = dataclasses.replace(_planted(5.0, 1.0), faulty=lambda key, data: (
      jnp.where(jnp.sum(data) > 0, jnp.nan, jax.random.laplace(key))[None]))
  drawn = samples.draw(_KEY, odd, False, num_pilot=50, num_tested=70)
  assert all(np.isfinite(side).all() for part in drawn for side in part)
  assert [side.shape for side in drawn.tested] == [(70, 1), (70, 1)]
  one, other = samples.scores(drawn)
  assert one.min() > other.max()
  drawn = samples.draw(_KEY, _planted(5.0, 1.0), False, num_pilot=500,
                       num_tested=400)
  one, other = samples.scores(drawn)
  # Two coordinates shifted by 5 are told apart more often than not.
  assert np.mean(one > np.quantile(other, 0.99)) > 0.5


def test_discrete_samples_are_coded():
  pilot = np.array([[0.5, 7.0], [2.5, 7.0], [0.5, 8.0]])
  drawn = samples.coded(samples.Samples((pilot, pilot), (pilot, pilot + 9)))
  assert drawn.tested[0].tolist() == [[0, 0], [1, 0], [0, 1]]
  # Unknown values are the largest known one.
  assert drawn.tested[1].tolist() == [[1, 1]] * 3


@pytest.mark.slow
@pytest.mark.parametrize('name', ['dp_auditorium', 'jax_privacy', 'statdp'])
def test_an_auditor_of_others_finds_a_lack_of_noise(name):
  if how := auditors.missing(name):
    pytest.skip(how)
  item = _planted(10.0, 0.5)
  assert auditors.run(name, _KEY, item, False).found is True
  assert auditors.run(name, _KEY, item, True).found is False


@pytest.mark.slow
@pytest.mark.every(12)
@pytest.mark.parametrize('name', registry.names())
def test_every_bug_is_found_and_no_repair_is_refuted(name):
  """At significance 0.05 each repair would be refuted with that probability;
  the tests are conservative, and seeds are fixed."""
  item = registry.load(name)
  faulty, fixed = ([auditors.run(each, _KEY, item, twin)
                    for each in auditors.OWN] for twin in (False, True))
  assert not any(result.found for result in fixed), fixed
  assert any(result.found for result in faulty) != (name in misses.KNOWN), (
      faulty)


def test_the_sweep_has_all_auditors_and_enough_audits():
  assert sweep.AUDITORS == tuple(auditors.AUDITORS)
  assert sweep.OWN == auditors.OWN and sweep.TWINS == bug.TWINS
  alarms = [setting for setting in sweep.SETTINGS if setting.kind == 'alarms']
  assert sum(setting.num_audits for setting in alarms) >= 1000


def test_known_misses_are_bugs_with_a_reason():
  assert set(misses.KNOWN) <= set(registry.names())
  assert all(misses.KNOWN.values())


def test_the_page_has_every_bug_that_is_asked_for():
  text = pages.bugs({_QUICK: {'dpjax_black_box': 'missed'}, 'not_there': {}})
  assert f'### {_QUICK}' in text and '- Black box: missed' in text
  assert 'not_there' not in text
