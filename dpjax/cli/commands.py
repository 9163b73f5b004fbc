"""The `dpjax` command: `dpjax train --help`, `dpjax estimate --help`, ...

Each command is a module of this package with a function `parse`, which reads
the words of the command line, and a function `main` of what `parse` returns.
Its docstring is what `--help` prints first.
"""

import importlib
import sys

from dpjax import errors as checks
from dpjax.cli import errors

COMMANDS = {
    'train': 'train networks with differential privacy',
    'plan': 'compare samplers and correlated noise for a training run',
    'estimate': 'release a private statistic of a file',
    'audit': 'test whether an implementation keeps its privacy claim',
    'schema': 'draft, check and review the public schema of a file',
    'bounds': 'show the least and the attained errors of private estimates',
    'quantiles': 'measure the errors of private quantile mechanisms',
    'mpc': 'compute a statistic of the records of several parties',
    'mpc_train': 'train a network on gradients that no server sees'}
"""Name of a command -> what it does."""

_EXAMPLES = r"""A network on a data set of scikit-learn:
  dpjax train --dataset=breast_cancer --epsilon=1 --output_dir=results/one

The mean of a column of your own file:
  dpjax estimate --input=survey.csv --statistic=mean --column=age \
    --lower=18 --upper=100 --epsilon=0.5 --adjacency=replace_one \
    --ledger=survey.ledger --ledger_budget_epsilon=2 --output=age.json"""


def run(name: str) -> None:
  """Runs a command on the words of the command line, and exits.

  Args:
    name: one of `COMMANDS`.
  """
  module = importlib.import_module(f'dpjax.cli.{name}')
  sys.argv[0] = module.__name__  # for the name of the command in help
  errors.run_main(module.main, module.parse)


def main() -> None:
  """Runs the command that is named by the first word, and exits."""
  name = sys.argv[1] if len(sys.argv) > 1 else '--help'
  if name in COMMANDS:
    del sys.argv[1]
    run(name)
  elif name in ('-h', '--help', 'help'):
    print(_help())
  elif name == '--version':
    print(importlib.import_module('dpjax').__version__)
  else:
    print(f'error: unknown command {name!r}'
          f'{checks.did_you_mean(name, COMMANDS)} (see dpjax --help)',
          file=sys.stderr)
    sys.exit(errors.BAD_INPUT)


def _help() -> str:
  width = max(map(len, COMMANDS))
  lines = [f'  {name:{width}}  {text}' for name, text in COMMANDS.items()]
  return '\n'.join([
      'usage: dpjax COMMAND --FLAG=VALUE ...', '',
      'Private training and private statistics in JAX.', '', _EXAMPLES, '',
      'Commands:', *lines, '',
      'dpjax COMMAND --help shows examples and the main flags of a command;',
      'dpjax COMMAND --helpfull shows all of its flags.'
  ])
