"""These tests check that rows of older code are
found, declared or confirmed."""

import dataclasses

import pytest

from dpjax.runs import grouping
from experiments import fingerprints
from experiments import freshness
from experiments import provenance
from experiments import records
from experiments import rendering
from experiments import selection
from launch import report

HISTORY = frozenset({'c0' + '1' * 38, 'ab' * 20})
REASON = 'made on a machine that is no more'


@pytest.fixture
def fresh_rows(toy):
  """Returns rows of the whole toy sweep, as the engine leaves them."""
  lines = []
  for group in grouping.groups(toy.settings, toy.batched):
    for setting, rows in toy.run(group, None, lambda *_: None):
      lines += [dataclasses.replace(row, commit='c0', device='cpu', jax='1',
                                    fingerprint='f0')
                for row in selection.named('toy', setting, rows)]
  return records.sort(lines)


def _change(rows, keep=lambda row: True, **fields):
  return [dataclasses.replace(row, **fields) if keep(row) else row
          for row in rows]


def _is_lip(row):
  return row.method == 'lip_dp_sgd'


def test_rows_of_the_present_code_are_fresh(toy, fresh_rows):
  assert freshness.stale(toy, fresh_rows, HISTORY) == []
  assert freshness.stale(toy, fresh_rows, None) == []


@pytest.mark.parametrize('fingerprint', ['f1', ''])
def test_rows_of_another_fingerprint_are_stale(toy, fresh_rows, fingerprint):
  line, = freshness.stale(
      toy, _change(fresh_rows, _is_lip, fingerprint=fingerprint), HISTORY)
  assert line.startswith('16 rows without the fingerprint') and '\n' not in line
  assert 'toy/dataset=adult,method=lip_dp_sgd' in line


@pytest.mark.parametrize('commit', ['d0', 'c0-dirty', 'unknown'])
def test_rows_of_a_lost_commit_are_stale(toy, fresh_rows, commit):
  rows = _change(fresh_rows, _is_lip, commit=commit)
  line, = freshness.stale(toy, rows, HISTORY)
  assert line.startswith('16 rows of commits') and commit in line
  assert freshness.stale(toy, rows, None) == []


def test_times_need_no_fingerprint(toy, fresh_rows):
  rows = _change(fresh_rows, lambda row: row.metric == 'loss', fingerprint='')
  assert len(freshness.stale(toy, rows, HISTORY)) == 1
  assert freshness.stale(toy._replace(times=('loss',)), rows, HISTORY) == []


def test_rows_of_no_setting_are_stale(toy, fresh_rows):
  line, = freshness.stale(toy, _change(fresh_rows, _is_lip, id='toy/x=1'), None)
  assert line.startswith('1 settings that are not of the sweep')


def test_declared_rows_may_be_older_and_the_table_says_so(toy, fresh_rows):
  declared = toy._replace(older={
      REASON: lambda setting: setting.method == 'lip_dp_sgd'})
  rows = _change(fresh_rows, _is_lip, fingerprint='', commit='d0')
  assert freshness.stale(declared, rows, HISTORY) == []
  table = rendering.render_table(declared, rows)
  assert f'Of older code, 8 settings: {REASON}.' in table
  assert '16 of 16 settings, 8 of them by older code' in table
  assert 'older' not in rendering.render_table(toy, rows)
  # The declaration does not excuse other settings.
  assert len(freshness.stale(declared, _change(rows, fingerprint=''),
                             HISTORY)) == 1
  # A declaration may not stay after the rows were made anew.
  line, = freshness.stale(declared, fresh_rows, HISTORY)
  assert line.startswith('8 settings that OLDER declares have rows of the')


def test_a_sample_confirms_the_kinds_that_it_makes_again(toy, fresh_rows):
  old = _change(fresh_rows, fingerprint='', commit='d0')
  sample = [row for row in fresh_rows
            if 'seed=0' in row.id and not _is_lip(row)]
  confirmed = freshness.confirm(toy, sample, old)
  assert confirmed.kinds == ('dataset=adult,method=dp_sgd',
                             'dataset=dropout,method=dp_sgd')
  assert confirmed.num_settings == 8
  assert [bool(row.fingerprint) for row in confirmed.rows] == [
      not _is_lip(row) for row in old]
  # All other fields of a row stay, so it still names who made it.
  assert _change(confirmed.rows, fingerprint='') == old
  assert confirmed.sample['settings_made_anew'] == 4


def test_one_other_row_leaves_its_kind_unconfirmed(toy, fresh_rows):
  other = next(row for row in fresh_rows if _is_lip(row))
  old = _change(_change(fresh_rows, fingerprint=''), lambda row: (
      row.id, row.metric) == (other.id, other.metric), value=0.5)
  confirmed = freshness.confirm(toy, fresh_rows, old)
  assert len(confirmed.kinds) == 3 and confirmed.compared.different == 1
  assert {(row.dataset, row.method) for row in confirmed.rows
          if not row.fingerprint} == {(other.dataset, other.method)}


def test_rows_of_another_device_are_not_confirmed(toy, fresh_rows):
  old = _change(_change(fresh_rows, fingerprint=''), _is_lip, device='gpu')
  confirmed = freshness.confirm(toy, fresh_rows, old)
  assert {row.device for row in confirmed.rows if row.fingerprint} == {'cpu'}


def test_a_sample_of_other_code_is_refused(toy, fresh_rows, monkeypatch):
  monkeypatch.setattr(fingerprints, 'streams', lambda: 'f2')
  with pytest.raises(ValueError, match='by other code .fingerprint f0'):
    freshness.confirm(toy, fresh_rows, fresh_rows)


def test_the_command_confirms_and_says_by_what(toy, fresh_rows, tmp_path,
                                               capsys,
                                               monkeypatch):
  folder = rendering.results_dir(tmp_path, 'toy')
  folder.mkdir(parents=True)
  (tmp_path / 'made').mkdir()
  records.write_sorted(folder / 'rows.csv', _change(fresh_rows, fingerprint=''))
  records.write_sorted(tmp_path / 'made' / 'rows.csv', fresh_rows[:2])
  assert report._confirm(tmp_path, 'toy', tmp_path / 'made') == 0
  assert ('4 settings confirmed, of dataset=adult,method=dp_sgd\n'
          in capsys.readouterr().out)
  line, = freshness.stale(toy, records.read(folder / 'rows.csv'), HISTORY)
  assert line.startswith('24 rows without')
  confirmed, = provenance.read(folder / 'provenance.json')['confirmed']
  assert confirmed['of_which'] == {'dataset=adult,method=dp_sgd': 1}
  assert confirmed['commit'] == 'c0' and confirmed['settings_confirmed'] == 4
  # Differing rows confirm nothing and are a failure.
  records.write_sorted(tmp_path / 'made' / 'rows.csv',
                       _change(fresh_rows[:2], value=0.1))
  before = (folder / 'rows.csv').read_bytes()
  assert report._confirm(tmp_path, 'toy', tmp_path / 'made') == 1
  assert (folder / 'rows.csv').read_bytes() == before
