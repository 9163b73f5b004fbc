"""Tests the wheel: size, content, and programs run outside the checkout."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

_ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  """Returns the wheel built from a copy of the files that git tracks."""
  folder = tmp_path_factory.mktemp('wheel')
  source = folder / 'source'
  source.mkdir()
  listed = subprocess.run(
      ['git', 'ls-files', '-z', 'dpjax', 'setup.cfg', 'pyproject.toml',
       'README.md', 'LICENSE', 'docs/description.md'], cwd=_ROOT, check=True,
      capture_output=True, text=True).stdout
  for name in filter(None, listed.split('\0')):
    if (_ROOT / name).exists():
      (source / name).parent.mkdir(parents=True, exist_ok=True)
      (source / name).write_bytes((_ROOT / name).read_bytes())
  subprocess.run([sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps',
                  '--wheel-dir', folder, source], check=True,
                 capture_output=True)
  built, = folder.glob('*.whl')
  return built


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
  """Returns a folder with the wheel alone; this run has its requirements."""
  folder = tmp_path_factory.mktemp('installed')
  subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet',
                  '--no-deps', '--target', folder, wheel], check=True,
                 capture_output=True)
  return folder


def _run(installed, folder, *words):
  """Runs Python away from the checkout, on the installed package."""
  return subprocess.run(
      [sys.executable, *words], cwd=folder, text=True, capture_output=True,
      env={**os.environ, 'PYTHONPATH': str(installed)}, check=False)


@pytest.mark.every(2)
def test_the_wheel_is_small_and_holds_the_library_alone(wheel):
  assert wheel.stat().st_size < 1.5e6
  names = zipfile.ZipFile(wheel).namelist()
  tops = {name.split('/')[0] for name in names}
  assert len(tops) == 2 and 'dpjax' in tops
  assert {pathlib.Path(name).suffix for name in names
          if name.startswith('dpjax/')} <= {'.py', '.typed', '.toml'}
  assert 'dpjax/py.typed' in names
  assert not [name for name in names if name.endswith('_test.py')]


@pytest.mark.every(2)
def test_programs_run_where_there_is_no_checkout(installed, tmp_path):
  (tmp_path / 'x.csv').write_text('age\n' + '\n'.join(map(str, range(90))))
  done = _run(installed, tmp_path, '-m', 'dpjax.cli', 'estimate',
              '--input=x.csv', '--statistic=mean', '--column=age', '--lower=0',
              '--upper=100', '--epsilon=1', '--adjacency=replace_one',
              '--ledger=x.ledger', '--ledger_budget_epsilon=1',
              '--output=x.json')
  assert done.returncode == 0, done.stderr
  assert '"value"' in (tmp_path / 'x.json').read_text()
  place = _run(installed, tmp_path, '-c', 'import dpjax; print(dpjax.__file__)')
  assert str(installed) in place.stdout
  help_ = _run(installed, tmp_path, '-m', 'dpjax.cli')
  assert help_.returncode == 0 and 'dpjax COMMAND' in help_.stdout
  wrong = _run(installed, tmp_path, '-m', 'dpjax.cli', 'trian')
  assert wrong.returncode == 2 and "'train'" in wrong.stderr


@pytest.mark.every(6)
def test_training_and_auditing_run_where_there_is_no_checkout(
    installed, tmp_path):
  done = _run(installed, tmp_path, '-m', 'dpjax.cli', 'train',
              '--dataset=breast_cancer', '--method=dp_sgd', '--epsilon=1',
              '--num_steps=5', '--num_canaries=20', '--output_dir=run')
  assert done.returncode == 0, done.stderr
  audited = _run(installed, tmp_path, '-m', 'dpjax.cli', 'audit',
                 '--target=run', '--run_dir=run')
  assert audited.returncode in (0, 3), audited.stderr


@pytest.mark.slow
def test_an_empty_environment_has_all_that_is_needed(wheel, tmp_path):
  """Installs the wheel with its requirements and runs the README's example."""
  subprocess.run([sys.executable, '-m', 'venv', tmp_path / 'env'], check=True)
  python = tmp_path / 'env' / 'bin' / 'python'
  subprocess.run([python, '-m', 'pip', 'install', '--quiet', wheel], check=True)
  text = (_ROOT / 'README.md').read_text()
  code = re.search(r'<!-- begin: example -->\n```python\n(.*?)```', text,
                   re.DOTALL)[1]
  environment = {name: value for name, value in os.environ.items()
                 if name != 'PYTHONPATH'}
  for words in (['-c', code], ['-m', 'dpjax.cli', '--version']):
    done = subprocess.run([python, *words], cwd=tmp_path, text=True,
                          capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
  assert done.stdout.strip() == importlib.metadata.version('dpjax')
  command = subprocess.run([tmp_path / 'env' / 'bin' / 'dpjax', '--help'],
                           cwd=tmp_path, capture_output=True, text=True,
                           check=True)
  assert 'dpjax COMMAND' in command.stdout
