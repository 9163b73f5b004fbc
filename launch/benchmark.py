r"""Times one training step of every method, as ratios in one run.

The default network on 455 records, as the quickstart trains it:
  python -m launch.benchmark --suite=step

A larger network, a larger batch, one method only beside the non-private one:
  python -m launch.benchmark --suite=step --num_examples=30000 \
    --num_features=108 --batch_size=1024 --width=64 --methods=sgd,lip_dp_sgd

Ten runs at once, as sweeps train seeds:
  python -m launch.benchmark --suite=step --num_runs=10

Timings are only worth something on a machine that does nothing else.
"""

from collections.abc import Sequence

from absl import flags

from dpjax import errors as checks
from dpjax.report import tables
from experiments import step_time
from launch import errors

flags.declare_key_flag('traceback')

_SUITE = flags.DEFINE_enum('suite', 'step', ['step'], 'What to measure.')
_METHODS = flags.DEFINE_list(
    'methods', list(step_time.METHODS), 'Methods, the unit first.')
_NUM_EXAMPLES = flags.DEFINE_integer('num_examples', 455, 'Records.')
_NUM_FEATURES = flags.DEFINE_integer('num_features', 30, 'Features.')
_BATCH_SIZE = flags.DEFINE_float('batch_size', 227, 'Expected batch size.')
_DEPTH = flags.DEFINE_integer('depth', 1, 'Hidden layers.')
_WIDTH = flags.DEFINE_integer('width', 16, 'Units of every hidden layer.')
_NUM_STEPS = flags.DEFINE_integer('num_steps', 2000, 'Steps in one round.')
_ROUNDS = flags.DEFINE_integer('rounds', 6, 'Rounds through all methods.')
_NUM_RUNS = flags.DEFINE_integer('num_runs', 1, 'Runs trained at once.')


def main(argv: Sequence[str]) -> int:
  """Measures and prints; returns the exit status."""
  errors.check_no_arguments(argv)
  for method in _METHODS.value:
    checks.check_choice('methods', method, step_time.METHODS)
  checks.check_at_least('num_steps', _NUM_STEPS.value, 40)
  checks.check_at_least('rounds', _ROUNDS.value, 1)
  times = step_time.measure(
      num_examples=_NUM_EXAMPLES.value, num_features=_NUM_FEATURES.value,
      batch_size=_BATCH_SIZE.value, depth=_DEPTH.value, width=_WIDTH.value,
      num_steps=_NUM_STEPS.value, rounds=_ROUNDS.value,
      num_runs=_NUM_RUNS.value, methods=_METHODS.value)
  print(tables.markdown(
      ('method', 'microseconds a step', f'over {_METHODS.value[0]}',
       'compile seconds'),
      [(t.method, f'{t.microseconds:.1f}', f'{t.ratio:.2f}',
        f'{t.compile_seconds:.1f}') for t in times]), end='')
  return 0


if __name__ == '__main__':
  errors.run_main(main)
