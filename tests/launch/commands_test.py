"""These tests check which commands `dpjax` has and how one is started."""

import importlib
import pathlib
import subprocess
import sys

import pytest

from dpjax.cli import commands

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _run(*words):
  return subprocess.run([sys.executable, '-m', *words], cwd=_ROOT, text=True,
                        capture_output=True, check=False)


@pytest.mark.parametrize('words', [(), ('--help',), ('help',)])
def test_help_names_every_command(words):
  done = _run('dpjax.cli', *words)
  assert done.returncode == 0 and not done.stderr
  for name, what in commands.COMMANDS.items():
    assert f'  {name} ' in done.stdout and what in done.stdout


@pytest.mark.parametrize('name', commands.COMMANDS)
def test_each_command_has_a_script_in_the_checkout(name):
  assert f"commands.run('{name}')" in (
      _ROOT / 'launch' / f'{name}.py').read_text()
  assert importlib.util.find_spec(f'dpjax.cli.{name}') is not None


@pytest.mark.parametrize('words', [
    ('dpjax.cli', 'schema'), ('launch.schema',), ('dpjax.cli', 'estimate')])
def test_help_of_a_command_has_its_docstring_and_flags(words):
  done = _run(*words, '--help')
  assert done.returncode == 0
  assert f'usage: dpjax {words[-1].removeprefix("launch.")}' in done.stdout
  assert '--input' in done.stdout or '--data' in done.stdout


def test_all_commands_can_be_imported_in_one_process(capsys):
  """All commands can be imported together, with
  separate flags of equal names."""
  modules = {name: importlib.import_module(f'dpjax.cli.{name}')
             for name in commands.COMMANDS}
  for name, module in modules.items():
    with pytest.raises(SystemExit) as exited:
      module.parse([name, '--help'])
    assert not exited.value.code
    shown = capsys.readouterr().out
    assert f'dpjax {name}' in shown and '\n  --' in shown
  modules['train'].parse(['train', '--epsilon=1,2', '--seed=3'])
  modules['audit'].parse(['audit', '--epsilon=4', '--delta=0'])
  assert modules['audit']._EPSILON.value == 4.0
  assert modules['train']._FLAGS['epsilon'].value == '1,2'
  with pytest.raises(SystemExit):
    modules['audit'].parse(['audit', '--batch_size=3'])
  assert "unknown flag --batch_size (see --help)" in capsys.readouterr().err


@pytest.mark.parametrize('name', commands.COMMANDS)
def test_help_of_all_commands_has_one_layout(name, capsys):
  """Every command's help has the usage, an example and ten or all flags."""
  parse = importlib.import_module(f'dpjax.cli.{name}').parse

  def shown(word):
    with pytest.raises(SystemExit) as exited:
      parse([f'dpjax.cli.{name}', word])
    assert not exited.value.code
    return capsys.readouterr().out.splitlines()

  short, full = shown('--help'), shown('--helpfull')
  flags_of = lambda lines: [line.split(':')[0] for line in lines
                            if line.startswith('  --')]
  for lines in (short, full):
    assert lines[:2] == [f'usage: dpjax {name} --FLAG=VALUE ...', '']
    example = next(i for i, line in enumerate(lines) if '  dpjax ' in line)
    assert example < lines.index(next(
        line for line in lines if line.startswith('  --')))
    assert all(len(line) <= 80 for line in lines)
  if short != full:
    assert 'Main flags:' in short and len(flags_of(short)) == 10
    assert short[-1] == (
        f'--helpfull shows all {len(flags_of(full))} flags, in groups.')
  assert set(flags_of(short)) <= set(flags_of(full))


def test_an_unknown_command_is_one_line():
  done = _run('dpjax.cli', 'trian', '--epsilon=1')
  assert done.returncode == 2 and not done.stdout
  assert done.stderr == (
      "error: unknown command 'trian'; did you mean 'train'? "
      '(see dpjax --help)\n')
  assert _run('dpjax.cli', '--version').stdout.strip()
