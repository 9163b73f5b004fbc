"""Tests the public names: few, handwritten, and imported when used."""

import importlib
import inspect
import pathlib
import re

import pytest

import dpjax

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_FUNCTIONS = {'cite', 'make_private'}
_PACKAGES = {name: importlib.import_module(f'dpjax.{name}')
             for name in dpjax.__all__ if name not in _FUNCTIONS}
_NAMES = [(package, name) for package, module in _PACKAGES.items()
          for name in getattr(module, '__all__', ())] + [
              ('', name) for name in sorted(_FUNCTIONS)]
_IMPORT = re.compile(r'^\s*(?:>>> )?from (dpjax[\w.]*) import ([\w, ]+)')


def test_the_public_names_are_few():
  assert len(dpjax.__all__) + len(_NAMES) <= 170


@pytest.mark.parametrize('package, name', _NAMES)
def test_a_public_name_is_there_and_says_what_it_is(package, name):
  value = getattr(_PACKAGES.get(package, dpjax), name)
  if isinstance(value, dict):
    return
  text = inspect.getdoc(value) or ''
  assert len(text.split('\n\n')[0].split()) >= 4, text
  if inspect.isfunction(value):
    assert all(parameter.annotation is not parameter.empty
               for parameter in inspect.signature(value).parameters.values())


@pytest.mark.parametrize('package', ['dpjax', *map('dpjax.{}'.format,
                                                   _PACKAGES)])
def test_dir_lists_the_public_names_and_nothing_else(package):
  """`dir` lists all public names, so completion finds unimported ones."""
  module = importlib.import_module(package)
  if hasattr(module, '__path__'):
    assert {name for name in dir(module)
            if not name.startswith('__')} == {*module.__all__}


def test_lists_of_names_are_those_of_the_top_packages_only():
  listing = {path.parent.relative_to(_ROOT).as_posix()
             for path in (_ROOT / 'dpjax').rglob('*.py')
             if re.search('^__all__ = ', path.read_text(), re.MULTILINE)}
  assert listing <= {'dpjax', *(f'dpjax/{name}' for name in _PACKAGES)}


@pytest.mark.parametrize('page', ['README.md', 'docs/description.md'])
def test_examples_for_users_import_public_names(page):
  imports = [match for line in (_ROOT / page).read_text().splitlines()
             if (match := _IMPORT.match(line))]
  assert imports
  for match in imports:
    module = importlib.import_module(match[1])
    for name in match[2].split(','):
      assert name.strip() in module.__all__, match[0]
