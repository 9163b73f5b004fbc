"""These tests check that notebooks are valid and run from top to bottom."""

import ast
import re
import tempfile

import jax
import nbformat
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
    'private_fine_tuning': dict(WIDTH=8, HEADS=2, PUBLIC_STEPS=2,
                                PUBLIC_BATCH=8, STEPS=2, BATCH=20, EVERY=1,
                                RANK=2),
    'private_training': dict(METHODS=('dp_sgd',), DEPTHS=(0, 1),
                             EPSILONS=(4.0,), SEEDS=range(2), NUM_STEPS=2,
                             DIGIT_STEPS=2),
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
    exec(compile(ast.Module(body, []), cell.id, 'exec'), names)
    if last is not None:
      shown.append(eval(compile(ast.Expression(last.value), cell.id, 'eval'),
                        names))
    if 'parameters' in tags:
      names |= _SMALL[name]
  return shown, names


@pytest.mark.every(5)
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW))
    for name in _NAMES])
def test_runs_and_draws(name, tmp_path, monkeypatch, capsys):
  matplotlib = pytest.importorskip('matplotlib')
  matplotlib.use('Agg')
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  # Notebooks are written as users write, without strict modes.
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
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
