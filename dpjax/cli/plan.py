r"""Plans private training: compares samplers and strategies of noise.

Noise for 60000 records, batches of 500 and 1200 steps at epsilon 2:
  dpjax plan --num_examples=60000 --batch_size=500 --steps=1200 \
    --epsilon=2 --delta=1e-5

The same as JSON, with strategies that are optimised (needs dpjax[matrix]):
  dpjax plan --num_examples=60000 --batch_size=500 --steps=1200 \
    --epsilon=2 --delta=1e-5 --optimised --output=plans.json

Each line is a plan that meets the target with as little noise as possible.
Noise is that of a coordinate of the mean gradient, in units of the clip norm:
`step` is its root mean square in single steps, and `sums` that of the sums of
the gradients of the first steps, which the parameters of gradient descent hold.
The plan of the least noise of sums is first. Noise multipliers of different
strategies cannot be compared. No data are read.

Samplers:
  Poisson: each record is in each batch with the same probability.
  fixed size: each batch is a uniform subset; for replace_one.
  random allocation: each record is in one uniform batch of each epoch; for
    add_or_remove_one, if batch_size divides num_examples.
  cyclic: random groups of records take turns; for correlated noise.

Strategies:
  independent: fresh noise in each step.
  square_root: a banded square root of the matrix of prefix sums.
  inverse_square_root: the same, but the inverse is banded.
  tree: binary tree aggregation.
  optimal_banded, optimal_buffered: of least error, by optimisation.

make_private takes them as its arguments `sampler` and `noise`.
"""

import argparse
from collections.abc import Sequence
import json
from typing import Any

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import files
from dpjax.report import tables
from dpjax.train import comparison
from dpjax.train.comparison import Choice

_RUN = {'num_examples': 'Public number of records.',
        'batch_size': 'Expected batch size.',
        'steps': 'Number of steps of the run.'}
_TARGET = {
    'epsilon': 'Epsilon of the whole run.',
    'delta': 'Delta of the whole run, in [1e-12, 1).',
    'adjacency': 'Which data sets are neighbours: '
    f'{" or ".join(each.value for each in Adjacency)}. Default: '
    'add_or_remove_one.'}
_OUTPUT = {'optimised': 'Also try optimised strategies, which takes longer.',
           'output': 'File for all plans, .json.'}
Row = dict[str, Any]


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  return errors.parse_texts(
      argv, {'Run': _RUN, 'Target': _TARGET, 'Output': _OUTPUT},
      doc=__doc__ or '', switches=('optimised',))


def _number(args: argparse.Namespace, name: str) -> float:
  """Returns the one number of a flag."""
  numbers = shared.numbers(name, getattr(args, name), float)
  if len(numbers) != 1:
    raise ValueError(f'--{name} must be one number, got '
                     f'{getattr(args, name)!r}')
  return numbers[0]


def _whole(args: argparse.Namespace, name: str) -> int:
  """Returns the whole number of a flag."""
  number = _number(args, name)
  if not 1 <= number < 2**53 or number != int(number):
    raise ValueError(f'--{name} must be a whole number >= 1, got '
                     f'{getattr(args, name)!r}')
  return int(number)


def rows(choices: Sequence[Choice]) -> list[Row]:
  """Returns the values of each choice, in the order given."""
  independent = next(each.prefix_noise for each in choices
                     if comparison.name_of(each.plan.sampler) == 'Poisson')
  return [{
      'sampler': comparison.name_of(each.plan.sampler), 'noise': each.noise,
      'noise_multiplier': each.plan.noise_multiplier,
      'step_noise': each.step_noise, 'prefix_noise': each.prefix_noise,
      'to_poisson': each.prefix_noise / independent} for each in choices]


def main(args: argparse.Namespace) -> int:
  """Prints the plans that the flags ask for; returns the exit status."""
  shared.check_given({name: getattr(args, name) for name in (
      'num_examples', 'batch_size', 'steps', 'epsilon', 'delta')})
  if args.output:
    errors.check_output('output', args.output, '.json')
  run: Row = {
      'num_examples': _whole(args, 'num_examples'),
      'batch_size': _number(args, 'batch_size'),
      'num_steps': _whole(args, 'steps'),
      'epsilon': checks.check_positive('--epsilon', _number(args, 'epsilon')),
      'delta': _number(args, 'delta'), 'adjacency': Adjacency(
          args.adjacency or Adjacency.ADD_OR_REMOVE_ONE).value}
  choices, left_out = comparison.compare(**run, optimised=args.optimised)
  found = rows(choices)
  print(tables.markdown(
      ['sampler', 'noise', 'multiplier', 'step', 'sums', 'sums to Poisson'],
      [[row['sampler'], row['noise'], f'{row["noise_multiplier"]:.4g}',
        f'{row["step_noise"]:.3g}', f'{row["prefix_noise"]:.3g}',
        f'{row["to_poisson"]:.3f}'] for row in found]))
  for name, why in left_out.items():
    print(f'without {name}: {why}')
  if args.output:
    files.replace(args.output, (json.dumps({
        **run, 'plans': found, 'left_out': left_out}, indent=2) + '\n'
                                ).encode())
  return 0
