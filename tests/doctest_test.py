"""Tests that docstring examples do what they print."""

import doctest
import importlib
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# Their compilation takes seconds; the README trains by default.
_LONG = ('dpjax.stats.roc_curves', 'dpjax.train.loop')
_MODULES = [
    '.'.join(path.relative_to(_ROOT).with_suffix('').parts).removesuffix(
        '.__init__')
    for path in sorted((_ROOT / 'dpjax').rglob('*.py'))
    if '>>> ' in path.read_text()]


@pytest.mark.every(8)
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=pytest.mark.slow) if name in _LONG else name
    for name in _MODULES])
def test_examples_do_what_they_print(name):
  # Examples import everything else, as a reader has to.
  known = {'jax': jax, 'jnp': jnp, 'np': np}
  tests = [test for test in doctest.DocTestFinder().find(
      importlib.import_module(name)) if test.examples]
  runner = doctest.DocTestRunner(verbose=False)
  for test in tests:
    test.globs = dict(known)
    output = []
    runner.run(test, out=output.append)
    assert not runner.failures, ''.join(output)
  assert runner.tries > 0


def test_every_package_has_examples():
  packages = {path.name for path in (_ROOT / 'dpjax').iterdir()
              if (path / '__init__.py').exists()}
  packages -= {'cli', 'studies'}  # These are programs, or imported by none.
  assert {name.split('.')[1] for name in _MODULES if '.' in name} >= packages
