"""Runs a command line with the toy experiment: toy_main.py sweep FLAGS.

No JAX is imported, so that a test can afford many of these.
"""

import importlib
import pathlib
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from dpjax.cli import errors  # noqa: E402
from dpjax.runs import environment  # noqa: E402
from experiments import fingerprints  # noqa: E402
from experiments import registry  # noqa: E402

if __name__ == '__main__':
  # A test run in the background would otherwise ignore SIGINT.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  registry.EXPERIMENTS.clear()
  registry.EXPERIMENTS['toy'] = 'toy'
  environment.current = lambda **_: environment.Environment(
      'cpu', '1', environment.commit(), {'jax': '1'})
  environment.commit = lambda: 'c0'
  fingerprints.streams = lambda: 'f0'
  module = importlib.import_module(f'launch.{sys.argv.pop(1)}')
  own = [module.parse] if hasattr(module, 'parse') else []
  errors.run_main(module.main, *own)
