"""Tests that one declaration of a training option gives all that follows."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import jax
import pytest

from dpjax.cli import train
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.runs import run_keys
from dpjax.runs import settings
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SETTINGS = settings.declared(TrainingConfig)
_NEW = '''
  patience: int | None = field(default=None, metadata=about(
      OPTIMISER, 'Epochs to wait for a better model.',
      check=settings.at_least(2), later=True))
'''
# This uses the new option, in a process with the changed package.
_USE = '''
import dataclasses, json, pydoc
from dpjax.cli import train
from dpjax.runs import configuration, run_keys, summary
from dpjax.runs.options import TrainingConfig

def config(*words):
  train.parse(['train', *words])
  return train._configs()[0]

def refusal(*words):
  try:
    config(*words)
  except ValueError as error:
    return str(error)

plain, new = config('--noise_seed=1'), config('--noise_seed=1', '--patience=3')
print(json.dumps({
    'json': json.dumps(dataclasses.asdict(new)),
    'refused': refusal('--patience=1'),
    'docs': pydoc.plain(pydoc.render_doc(TrainingConfig)),
    'keys': [str(run_keys.run_key(each)) for each in (plain, new)]}))
'''


@pytest.mark.every(8)
def test_a_new_option_is_one_declaration(tmp_path):
  """One declaration gives an option its flag, check, JSON, key and text."""
  shutil.copytree(_ROOT / 'dpjax', tmp_path / 'dpjax',
                  ignore=shutil.ignore_patterns('__pycache__'))
  path = tmp_path / 'dpjax' / 'runs' / 'options.py'
  text = path.read_text()
  end = text.index('\n  @property\n  def num_slots')
  path.write_text(text[:end].rstrip() + _NEW + text[end:])

  def run(*words):
    return subprocess.run(
        [sys.executable, *words], cwd=tmp_path, text=True, check=True,
        capture_output=True,
        env={**os.environ, 'PYTHONPATH': str(tmp_path)}).stdout

  answer = json.loads(run('-c', _USE))
  assert json.loads(answer['json'])['patience'] == 3
  assert answer['refused'] == 'patience must be an integer >= 2, got 1'
  assert 'patience: Epochs to wait for a better model.' in answer['docs']
  plain, new = answer['keys']
  config, = _configs('--noise_seed=1')
  assert plain == str(run_keys.run_key(config)) != new
  help_ = run('-m', 'dpjax.cli', 'train', '--helpfull')
  optimiser = help_[help_.index('\nOptimiser:'):help_.index('\nMachine:')]
  assert '\n  --patience: Epochs to wait for a better model.\n' in optimiser


def _configs(*words):
  train.parse(['train', *words])
  return train._configs()


# These were made before options were declared in one place: words of the run's
# key and of the key of the initial parameters; SHA-256 of repr and of JSON, up
# to the last option of that time. They must not change when an option is added.
_LAST_KEPT = 'noise_seed'
_KEPT = {
    'numbers': (
        dict(dataset='adult', method='lip_dp_sgd', epsilon=0.5, delta=1e-6,
             num_examples=1000, batch_size=64.0, depth=2, width=8, seed=3,
             noise_seed=7, weight_norm=1.5, optimizer='adam'),
        [3285934335, 17281688], [3334479467, 2497162129], '8df56d16681bef87',
        '3a52cac3af8ae386'),
    'images': (
        dict(dataset='digits', method='layer_clipped', channels=(2, 3),
             stride=2, pool='none', use_bias=False, pixels='unsigned',
             model='convnet', noise_seed=1),
        [425743469, 2539678498], [4271514425, 4032083904], 'fe2f2914eeef9233',
        'a45ca79ef9468ac9'),
    'later': (
        dict(dataset='breast_cancer', method='lip_adaptive',
             target_quantile=0.7, count_noise=0.1, num_canaries=20,
             canary_seed=4, canary_kind='noise', fold=1, num_folds=4,
             split_seed=2, noise='lattice_gaussian', noise_seed=5),
        [4043888360, 663736601], [3646593972, 648383779], 'ff8d4b1391543a6d',
        '190fa30a0959ac09')}
# The same values, resolved with 5000 records.
_KEPT_RESOLVED = {
    'numbers': ([2220969426, 1208884991], [1791404995, 589936019],
                '6efb75e0757a2d2b', 'e8ee498a2acc0360'),
    'images': ([478366033, 77933872], [2617979477, 3612744895],
               '63352dd2fe238273', '8b7bcea972b64efd'),
    'later': ([2370622177, 1729937917], [1114962564, 2256084745],
              '99f94b4a9e393796', '16d2dee0acc0c3cd')}


# This configuration has one more option, declared at the end.
_WithNewOption = dataclasses.make_dataclass(
    'TrainingConfig', [('patience', int | None, dataclasses.field(
        default=None, metadata=settings.about(
            options.OPTIMISER, 'Epochs to wait for a better model.',
            later=True)))],
    bases=(TrainingConfig,), frozen=True, kw_only=True)


@pytest.mark.sound
@pytest.mark.parametrize('config_type', [TrainingConfig, _WithNewOption])
@pytest.mark.parametrize('name', _KEPT)
def test_keys_of_published_runs_stay(name, config_type):
  def traces(config):
    names = [field.name for field in dataclasses.fields(config)]
    kept = {key: getattr(config, key)
            for key in names[:names.index(_LAST_KEPT) + 1]}
    fields = ', '.join(f'{key}={value!r}' for key, value in kept.items())
    assert f'TrainingConfig({fields}' in repr(config)
    texts = f'TrainingConfig({fields})', json.dumps(kept)
    return (*(jax.random.key_data(key).tolist() for key in (
        run_keys.run_key(config), run_keys.init_key(config))),
            *(hashlib.sha256(text.encode()).hexdigest()[:16]
              for text in texts))

  values, *kept = _KEPT[name]
  config = config_type(**values)
  assert traces(config) == tuple(kept)
  assert traces(configuration.resolve(
      config, num_available=5000)) == _KEPT_RESOLVED[name]


def test_every_option_is_used():
  """Every option is read by some code or taken by a method."""
  code = '\n'.join(path.read_text() for package in ('runs', 'cli')
                   for path in (_ROOT / 'dpjax' / package).glob('*.py')
                   if path.name != 'options.py')
  arguments = {name for method in training_methods.METHODS.values()
               for name in method.arguments}
  for setting in _SETTINGS:
    assert setting.name in arguments or re.search(
        rf'\.{setting.name}\b', code), setting.name


def test_the_documentation_has_every_option():
  for setting in _SETTINGS:
    assert re.search(rf'^  {setting.name}: [A-Za-z]', TrainingConfig.__doc__,
                     re.MULTILINE)
    assert setting.help.endswith('.') and setting.group in options.GROUPS


def test_help_shows_ten_flags_and_helpfull_all(capsys):
  with pytest.raises(SystemExit):
    train.parse(['train', '--help'])
  short = capsys.readouterr().out
  assert 'dpjax train --dataset=' in short and '--helpfull shows all' in short
  assert len(re.findall(r'^  --', short.split('Main flags:')[1], re.M)) == 10
  with pytest.raises(SystemExit):
    train.parse(['train', '--epsilon=1', '--helpfull'])
  full = capsys.readouterr().out
  titles = re.findall(r'^(\w.*):\n  --', full, re.M)
  assert titles == ['Data', 'Your own CSV file', 'Privacy',
                    'Method and network', 'Optimiser', 'Machine',
                    'Several devices or machines', 'Output']
  for setting in _SETTINGS:
    if setting.name != 'delta_power':
      assert re.search(rf'^  --(\[no\])?{setting.name}: ', full, re.M)


def test_recipes_have_a_value_for_every_option_that_they_fill():
  filled = {setting.name for setting in _SETTINGS if setting.filled}
  for images in (False, True):
    recipe = recipes.recipe('dp_sgd', num_train=1000, images=images)
    assert recipe.keys() == filled - {
        'num_examples', 'model', 'delta', 'sampler_groups', 'bands',
        'user_records'}
    for setting in _SETTINGS:
      if setting.name in recipe:
        assert isinstance(recipe[setting.name], setting.kind), setting.name


def test_flags_have_the_defaults_of_the_options():
  config, = _configs()
  assert config == TrainingConfig(
      dataset='breast_cancer', method='dp_sgd', noise='lattice_gaussian')
  config, = _configs('--channels=2,3', '--nouse_bias', '--delta=1/n',
                     '--noise=gaussian', '--fold=1')
  assert (config.channels, config.use_bias, config.fold) == ((2, 3), False, 1)
  assert (config.delta, config.delta_power) == (None, 1.0)


@dataclasses.dataclass(frozen=True)
class _Typed:
  """A field whose type has no kind of flag."""
  names: dict = dataclasses.field(default=None, metadata=settings.about(
      options.DATA, 'Names.'))


def test_wrong_declarations_are_refused():
  with pytest.raises(TypeError, match='cannot be of type'):
    settings.declared(_Typed)
  with pytest.raises(ValueError, match='configuration.resolve'):
    settings.known(None)
