"""These tests check that a mistake in flags gives one line and exit status 2.

Nothing else is done.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from dpjax.cli import errors

_HERE = pathlib.Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]

_MEAN = ('estimate --input=OWN --statistic=mean --lower=0 --upper=9 '
         '--adjacency=replace_one --ledger=NEW --ledger_budget_epsilon=1 ')
_CURVE = ('mpc --demo=10 --lower=0 --upper=1 --epsilon=1 '
          '--adjacency=replace_one ')
_NO_ROOM = '/proc/nowhere'

# Each case has (a missing module, words, the error line).
_MISTAKES = (
  ('', 'train --epsilom=1', 'unknown flag --epsilom; did you mean \'--epsilon\'? (see'),
  ('', 'train --output_dir=NEW --num_steps=x', '--num_steps must be integers separated by commas, got \'x\''),
  ('', 'train --output_dir=NEW --optimizer=adma', 'did you mean \'adam\'?'),
  ('', 'train --output_dir=NEW --method=dpsgd', 'did you mean \'dp_sgd\' or'),
  ('', 'train --output_dir=NEW --dataset=adlut', 'did you mean \'adult\'?'),
  ('', 'train --output_dir=NEW --epsilon=nan', 'epsilon must be a positive'),
  ('', 'train --output_dir=NEW --delta=1', 'delta must lie in [1e-12, 1)'),
  ('', f'train --output_dir=NEW --seed={2**32}', 'seed must be below 2^32'),
  ('', 'train --output_dir=NEW --width=0', 'width must be an integer >= 1'),
  ('', 'train --output_dir=NEW --depth=-1', 'depth must be an integer >= 0'),
  ('', 'train --output_dir=OWN/x', 'OWN is not a folder'),
  ('', f'train --output_dir={_NO_ROOM}', 'cannot write to /proc'),
  ('', 'schema --datset=OWN', 'did you mean \'--dataset\'? (see --help)'),
  ('', 'schema --dataset=OWN --output=NEW --label=aeg', 'mean \'age\'?'),
  ('', f'schema --dataset=OWN --output={_NO_ROOM} --label=age', 'to /proc'),
  ('', _MEAN + '--epsilon=1 --column=aeg --output=NEW2', 'mean \'age\'?'),
  ('', _MEAN + '--epsilon=1 --column=age --output=NEW2 --separator=;',
   'is the separator a comma'),
  ('', _MEAN + f'--epsilon=1 --column=age --output={_NO_ROOM}', 'to /proc'),
  ('', _MEAN + '--epsilon=0 --column=age --output=NEW2', 'must be positive'),
  ('', 'bounds --model=propotion --n=9 --epsilon=1', 'mean \'proportion\'?'),
  ('', 'bounds --model=proportion --n=9 --epsilon=1 '
   f'--output={_NO_ROOM}.csv', 'cannot write to /proc'),
  ('matplotlib', 'bounds --model=proportion --n=9 --epsilon=1 --plot=NEW.svg',
   'figures need matplotlib: pip install dpjax[plots]'),
  ('', f'quantiles --output={_NO_ROOM}', 'cannot write to /proc'),
  ('', 'quantiles --output=NEW --seed=-1', 'seed must be an integer >= 0'),
  ('matplotlib', 'quantiles --output=NEW --plot=NEW.svg', 'dpjax[plots]'),
  ('', 'quantiles --distributions=none.csv:age --lower=0 --upper=1 --output=NEW',
   'error: none.csv: No such file or directory'),
  ('', 'audit --target=gausian', 'did you mean \'gaussian\'?'),
  ('', f'audit --target=gaussian --output={_NO_ROOM}', 'cannot write to'),
  ('', 'audit --scores=OWN --epsilon=1', 'OWN is not an .npz file of scores'),
  ('', 'sweep --experiment=lip_tabula', 'did you mean \'lip_tabular\'?'),
  ('', 'report --experiment=lip_tabula', 'did you mean \'lip_tabular\'?'),
  ('', 'benchmark --models=tiny_mlp --methods=ours --rounds=0', 'rounds must'),
  ('', _CURVE + f'--output={_NO_ROOM}', 'cannot write to /proc'),
  ('', 'mpc --input=OWN --column=aeg --lower=0 --upper=1 --epsilon=1 '
   '--adjacency=replace_one --output=NEW', 'did you mean \'age\'?'),
  ('', 'mpc --input=OWN --column=age --lower=0 --upper=1 --epsilon=1 '
   '--adjacency=replace_one --output=OWN', '--output must be another file than '
   '--input, got OWN'),
  ('', _CURVE + '--study=NEW --output=NEW/curve.json',
   '--output must be outside of --study, got NEW/curve.json'),
  ('', 'quantiles --distributions=OWN:age --lower=0 --upper=1 --output=OWN',
   '--output must be another file than --distributions, got OWN'),
  # All flags that are missing are named at once.
  ('', 'train', 'error: --output_dir must be given (see --help)'),
  ('', 'train --dataset=OWN', '--output_dir, --label, --classes and --bounds or '
   '--categories (or --schema for all) must be given'),
  ('', 'estimate', 'error: --input, --statistic, --epsilon, --adjacency, '
   '--ledger and --output must be given (see --help)'),
  ('', 'estimate --input=OWN --statistic=mean --ledger=NEW', '--column, --lower, '
   '--upper, --epsilon, --adjacency, --output and --ledger_budget_epsilon '
   '(there is no ledger NEW) must be given'),
  ('', 'bounds', '--model, --n and --epsilon (or another budget) must be'),
  ('', 'mpc', '--input (or --demo), --column, --lower, --upper, --epsilon, '
   '--adjacency and --output must be given'),
  ('', 'mpc --resume --output=NEW', 'error: --study must be given'),
  ('', 'mpc_train', 'error: --epsilon and --output must be given (see --help)'),
  ('', 'mpc_train --epsilon=1 --output=NEW --patience=60',
   '--patience must be below --timeout = 60, got 60'),
  ('', 'mpc_train --epsilon=1 --output=NEW/a.json', '--output must be a file in'),
  ('', 'mpc_train --epsilon=0 --output=NEW', 'epsilon must be a positive number'),
  ('', 'mpc_train --epsilon=1 --output=NEW --owners=569',
   '--owners must be below the 569 records of breast_cancer, got 569'),
  ('', 'mpc_train --epsilon=1 --output=NEW --dataset=adlut', 'dataset must be'),
  ('', 'schema', '--dataset, --label and --output must be given for a draft, or'),
  ('', 'quantiles --distributions=OWN:age', '--output, --lower and --upper must be given'),
  # A long list is not printed; the error shows similar names and the place.
  ('', 'audit --target=nope', 'unknown target \'nope\': it must be one of 1'),
  ('', 'audit --target=nope', 'module:NAME (all: dpjax audit --list)'),
  ('', 'audit --target=gauss', 'mean \'gaussian\' or \'classical_gaussian\' or '),
  ('', _MEAN + '--epsilon=1 --column=age --output=NEW2 --statistic=nope',
   'names, got \'nope\' (all: dpjax estimate --helpfull)'),
  ('', 'train --output_dir=NEW --dataset=nope', '(all: dpjax train --helpfull)'),
  ('', 'quantiles --output=NEW --methods=jont',
   'did you mean \'joint\'? (all: dpjax quantiles --helpfull)'),
  ('', 'quantiles --output=NEW --distributions=bate_2_5', 'did you mean \'beta_2_5\'?'),
  # Noise is not drawn for an answer that cannot be written.
  ('', _CURVE + '--output=NEW/a.json', '--output must be a file in an existing'),
  ('', _CURVE + '--output=NEW --plot=NEW/a.svg', '--plot must be a file in an'),
  ('', 'quantiles --output=NEW/a.csv', '--output must be a file in an existing'),
  # These messages say what was given, what is allowed and what to do.
  ('', _CURVE + '--output=NEW --servers=1', '--servers must be an integer >= 2'),
  ('', _CURVE + '--output=NEW --adjacency=one', '--adjacency must be one of '
   'add_or_remove_one, replace_one, got \'one\''),
  ('', 'mpc --demo', '--demo needs a value: --demo=VALUE (see --help)'),
  ('', 'audit --target=gaussian --list=maybe', '--list must be true or false'),
  ('', _MEAN + '--epsilon=1 --column=age --output=NEW2 --input=/',
   'error: / is a folder: give the path of a file'),
  ('', 'estimate words', 'error: unexpected words (see --help)'),
  ('', 'audit --run_dir=NEW', '--target=run and --run_dir come together: give'),
  ('cryptography', _CURVE + '--output=NEW', 'pip install dpjax[mpc]'),
  ('submitit', 'sweep --experiment=lip_tabular --smoke --output_dir=NEW '
   '--submitit=local', 'pip install "dpjax[cluster]"'),
)


@pytest.mark.every(12)
def test_each_mistake_is_one_line_and_nothing_is_done(tmp_path):
  own, new = tmp_path / 'own.csv', tmp_path / 'new'
  own.write_text('age,y\n1,0\n2,1\n')
  place = lambda text: text.replace('OWN', str(own)).replace('NEW', str(new))
  cases = [(block.split(), place(words).split())
           for block, words, _ in _MISTAKES]
  cases += [([], ['coverage', '--help'])]
  done = subprocess.run(
    [sys.executable, str(_HERE / 'mistakes_main.py')], cwd=_ROOT,
    input=json.dumps(cases), capture_output=True, text=True, check=True,
    env={'PATH': '', 'PYTHONPATH': str(_ROOT), 'JAX_PLATFORMS': 'cpu'})
  *answers, (status, out, err) = json.loads(done.stdout)
  assert status == 0 and not err and 'python -m launch.coverage' in out
  wrong = [
    (words, status, out[:200], err[:400])
    for (_, words, what), (status, out, err) in zip(
      _MISTAKES, answers, strict=True)
    if status != errors.BAD_INPUT or out or not err.startswith('error: ')
    or place(what) not in err or err.count('\n') != 1]
  assert not wrong
  # An estimate that fails in the data may have made an empty ledger.
  assert [path for path in tmp_path.iterdir() if path.stat().st_size] == [own]


def test_a_file_without_a_header_is_suspected():
  message = 'a.csv has no column \'age\'; there are '
  for names in ('21, M, no', 'M, 2.5', '7'):
    assert errors._format(ValueError(message + names)).endswith(
      'is its first line a record? (see header in --helpfull)')
  for names in ('x, y', 'x1, 2x'):
    assert errors._format(ValueError(message + names)) == message + names


def test_folders_and_files_that_can_be_written(tmp_path):
  errors.check_folder(str(tmp_path / 'a' / 'b'))
  errors.check_file(str(tmp_path / 'a.json'))
  assert not list(tmp_path.iterdir())
  with pytest.raises(OSError, match='is a folder: give the path of a file$'):
    errors.check_file(str(tmp_path))


def test_a_device_is_not_replaced_by_a_file(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  with pytest.raises(ValueError, match='pipe is not a regular file'):
    errors.check_file(str(tmp_path / 'pipe'))
  with pytest.raises(ValueError, match='/dev/null is not a regular file'):
    errors.check_file('/dev/null')


def test_outputs_replace_nothing_that_is_read(tmp_path):
  """Outputs never replace an input, by whatever name, link or path."""
  own, kept = tmp_path / 'own.csv', tmp_path / 'kept'
  own.write_text('age\n1\n')
  kept.mkdir()
  (tmp_path / 'soft').symlink_to(own)
  os.link(own, tmp_path / 'hard')
  (tmp_path / 'way').symlink_to(kept)
  check = lambda **outputs: errors.check_outputs(
    outputs, inputs={'input': own, 'label': None}, kept={'the ledger': kept})
  check(output=str(tmp_path / 'a'), plot=str(tmp_path / 'b'), table=None)
  for name in ('own.csv', './own.csv', 'kept/../own.csv', 'soft', 'hard'):
    with pytest.raises(ValueError, match='--plot must be another .* --input, '):
      check(output=None, plot=tmp_path / name)
  for name in ('kept', 'kept/1.json', 'kept/a/b', 'way/1.json', 'way'):
    with pytest.raises(ValueError, match='--plot must be outside of the ledg'):
      check(plot=tmp_path / name)
  with pytest.raises(ValueError, match='--plot must be another .* --output, '):
    check(output=tmp_path / 'a', plot=str(tmp_path / 'kept' / '..' / 'a'))
