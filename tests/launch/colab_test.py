"""These tests check that notebooks are valid and run from top to bottom."""

import ast
import re
import tempfile

import dp_accounting
from dp_accounting import pld
import jax
import nbformat
import numpy as np
import pytest

from dpjax.runs import environment

_FOLDER = environment.ROOT / 'launch' / 'colab'
_METADATA = {'kernelspec': {'display_name': 'Python 3', 'language': 'python',
                            'name': 'python3'},
             'language_info': {'name': 'python'}}
# These values replace those of the cell of parameters.
_SMALL = {
    'quickstart': dict(METHODS=('lip_dp_sgd',), EPSILONS=(2.0,),
                       SEEDS=range(2), NUM_STEPS=3),
    'private_statistics': dict(NUM_RECORDS=600, NUM_TRIALS=3, NUM_DRAWS=20),
    'one_figure': dict(ONLY=('method=cost,half', 'num_examples=50,100')),
    'audit_your_code': dict(NUM_RUNS=20000),
    'auditing': dict(NUM_RUNS=20000, NUM_CANARIES=60, NUM_STEPS=3),
    'private_training': dict(METHODS=('dp_sgd',), DEPTHS=(0, 1),
                             EPSILONS=(4.0,), SEEDS=range(2), NUM_STEPS=2,
                             DIGIT_STEPS=2),
    'private_fine_tuning': dict(LENGTH=24, WIDTH=32, PUBLIC_STEPS=60, STEPS=20,
                                BATCH=128),
}
_SLOW = ('audit_your_code', 'auditing', 'one_figure', 'private_fine_tuning',
         'private_training')
_NAMES = sorted(path.stem for path in _FOLDER.glob('*.ipynb'))
# Folders of a machine and addresses of hosts must not be published.
_PLACES = re.compile(r'/(home|root|tmp|work|usr|opt|mnt|content)/|https?://')


def _read(name):
  return nbformat.read(_FOLDER / f'{name}.ipynb', as_version=4)


def _tagged(cells, tag):
  return [cell for cell in cells if tag in cell.metadata.get('tags', ())]


def test_every_notebook_has_small_values():
  assert _NAMES == sorted(_SMALL)


@pytest.mark.every(1)
@pytest.mark.parametrize('name', _NAMES)
def test_is_valid_and_stripped(name):
  note = _read(name)
  nbformat.validate(note)
  assert (note.nbformat, note.nbformat_minor) == (4, 5)
  assert note.metadata == _METADATA
  assert [cell.id for cell in note.cells] == [
      f'{name.replace("_", "-")}-{number:02}'
      for number in range(len(note.cells))]
  for cell in note.cells:
    if cell.cell_type == 'code':
      assert not cell.outputs and cell.execution_count is None
    assert not _PLACES.search(cell.source), cell.id
    assert max(map(len, cell.source.splitlines())) <= 80, cell.id
  text = nbformat.writes(note, indent=1, ensure_ascii=False, sort_keys=True)
  assert (_FOLDER / f'{name}.ipynb').read_text() == text + '\n'


@pytest.mark.every(1)
@pytest.mark.parametrize('name', _NAMES)
def test_installs_once_and_says_what_it_is(name):
  cells = _read(name).cells
  assert cells[0].cell_type == 'markdown'
  assert cells[0].source.startswith('# ') and '**Time**' in cells[0].source
  [install], [parameters] = (_tagged(cells, tag)
                             for tag in ('install', 'parameters'))
  assert [cell for cell in cells if '%' in cell.source and re.search(
      r'^[%!]', cell.source, re.MULTILINE)] == [install]
  assert install == [cell for cell in cells if cell.cell_type == 'code'][0]
  assert install.source == _tagged(_read('quickstart').cells,
                                   'install')[0].source
  named = {target.id for node in ast.parse(parameters.source).body
           for target in node.targets}
  assert set(_SMALL[name]) <= named


def _run(name):
  """Runs a notebook's cells; returns the values shown and the namespace."""
  names, shown = {'__name__': '__main__'}, []
  for cell in _read(name).cells:
    tags = cell.metadata.get('tags', ())
    if cell.cell_type != 'code' or 'install' in tags:
      continue
    body = ast.parse(cell.source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    # Users have these settings, tests have stricter ones.
    with (jax.numpy_dtype_promotion('standard'),
          jax.numpy_rank_promotion('allow')):
      exec(compile(ast.Module(body, []), cell.id, 'exec'), names)
      if last is not None:
        shown.append(eval(compile(ast.Expression(last.value), cell.id, 'eval'),
                          names))
    if 'parameters' in tags:
      names |= _SMALL[name]
  return shown, names


@pytest.mark.every(8)
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW))
    for name in _NAMES])
def test_runs_and_draws(name, tmp_path, monkeypatch, capsys):
  matplotlib = pytest.importorskip('matplotlib')
  matplotlib.use('Agg')
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  shown, names = _run(name)
  figures = [value for value in shown if value is not None]
  assert figures and all(isinstance(value, matplotlib.figure.Figure)
                         for value in figures)
  for figure in figures:
    figure.savefig(tmp_path / 'figure.png', dpi=30)
    for ax in figure.axes:
      assert ax.get_xlabel() and ax.get_ylabel() and ax.has_data()
  assert not re.search(r'\bnan\b', capsys.readouterr().out)
  for key, value in _SMALL[name].items():
    assert names[key] == value


@pytest.mark.slow
def test_fine_tuning_is_private_and_learns():
  """Epsilon is that of an accountant, noise was added, and losses fall."""
  pytest.importorskip('matplotlib')
  _, names = _run('private_fine_tuning')
  small = _SMALL['private_fine_tuning']
  size = len(names['records'])
  for run, state in (('full', 'full_state'), ('lora', 'lora_state')):
    private, state = names[run], names[state]
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(
        small['BATCH'] / size,
        dp_accounting.GaussianDpEvent(private.noise_multiplier)), small['STEPS'])
    spent = accountant.get_epsilon(names['DELTA'])
    assert abs(private.epsilon() - spent) < 0.01 * spent
    assert 0.9 * names['EPSILON'] < spent <= names['EPSILON']
    assert private.clip_norm == names['CLIP_NORM'] and int(state.step) == 20
    assert private.epsilon(state) == private.epsilon()
  for curve in (names['spent'], names['lora_spent']):
    values = [value for _, value in curve]
    assert values[0] == 0 and np.all(np.diff(values) > 0)
  for name, least in (('not private', 0.3), ('private, in full', 0.1),
                      ('private, LoRA', 0.1)):
    losses = [loss for _, loss in names['curves'][name]]
    assert losses[-1] < losses[0] - least, name
  _check_noise(names)


def _check_noise(names):
  """Checks that noise moves even what no record has a gradient for."""
  # A token that no record contains: its exact gradient is zero.
  unused = sorted(set(range(len(names['CHARACTERS']) + 1))
                  - set(names['records'].ravel().tolist()))
  before = names['nnx'].to_pure_dict(names['nnx'].state(names['pretrained']))
  after = names['full_state'].params
  moved = np.abs(after['tokens']['embedding'] - before['tokens']['embedding'])
  assert unused and (moved[np.array(unused)] > 0).all()
