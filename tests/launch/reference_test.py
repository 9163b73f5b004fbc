"""These tests check that the reference covers
all modules and its links hold."""

import ast
import pathlib
import re
import sys
import types

import pytest

from launch import docstrings
from launch import reference

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BROKEN = '''
"""A module.

* `helper`: does what `sums.total` does, and `sums.missing` does not

A formula:

  a <= b
"""

def helper(sums: int) -> int:
  """As `sums.anything` of the argument says.

  Args:
    sums: a number
      - 1.

  Examples:
    >>> helper(1)
    1
  """
  return sums
'''
_SUMS = '''
"""Sums."""
import typing

class Pair(typing.NamedTuple):
  """Two numbers.

  Attributes:
    first: one.
  """
  first: int

def total(*values: int) -> Pair:
  """Adds up.

  Args:
    *values: numbers.
  """
  return Pair(sum(values))
'''


@pytest.fixture(name='package')
def fixture_package(tmp_path, monkeypatch):
  folder = tmp_path / 'counted'
  folder.mkdir()
  (folder / '__init__.py').write_text('"""Sums: `counted.sums`."""\n')
  (folder / 'sums.py').write_text(_SUMS.lstrip())
  (folder / 'broken.py').write_text(_BROKEN.lstrip())
  monkeypatch.syspath_prepend(tmp_path)
  yield 'counted'
  for name in [name for name in sys.modules if name.startswith('counted')]:
    del sys.modules[name]


def test_pages_and_what_is_wrong(package, tmp_path):
  folder = tmp_path / 'pages'
  names = reference.module_names(package)
  assert names == ['counted', 'counted.broken', 'counted.sums']
  problems = reference.build(names, folder)
  assert problems == [
      'counted.broken: docstring names `sums.missing`, which is not there',
      "counted.broken: starts with '-': - 1."]
  page = (folder / 'counted/broken.html').read_text()
  assert '<a href="sums.html#total">sums.total</a>' in page
  assert '<code>sums.anything</code>' in page
  assert '<pre><code>a &lt;= b' in page
  assert '<span class="gp">&gt;&gt;&gt; </span>' in page
  sums = (folder / 'counted/sums.html').read_text()
  assert 'Alias for field number' not in sums
  assert '<strong>*values:</strong>' in sums
  assert '<a href="counted/sums.html">' in (folder / 'counted.html').read_text()
  assert 'counted.html' in (folder / 'index.html').read_text()


@pytest.mark.every(1)
@pytest.mark.parametrize('docstring, problem', [
    ('Title.\n\nA sum of a\n- b of them.', "starts with '-'"),
    ('Title.\n\nA text of\n#records.', "starts with '#'"),
    ('Title.\n\nfirst: what it is and\n  more of it.\nsecond: this.', 'hangs'),
    ('Title.\n\nname      what it is', 'columns'),
])
def test_lines_that_would_be_shown_as_something_else(docstring, problem):
  line, = docstrings.unintended(docstring)
  assert line.startswith(problem)


@pytest.mark.every(1)
@pytest.mark.parametrize('docstring', [
    'Title.\n\nA formula is\n\n  a - b\n  - c\n\nand no list.',
    'Title.\n\n* one of\n  them.\n* two.',
    'Title.\n\nTwo of them:\n  name      what it is\n  other     of it',
    'Title.\n\nArgs:\n  name: which\n    is on two lines.',
    'Title.\n\nExamples:\n  >>> 1 + 1\n  2',
])
def test_what_is_shown_as_it_is_meant(docstring):
  assert not list(docstrings.unintended(docstring))


def test_blocks_are_fenced():
  markdown = docstrings.to_markdown('Sums:\n\n    a\n\n      b\n\nof them.')
  assert re.sub('\n+', '\n', markdown) == 'Sums:\n```\na\n  b\n```\nof them.'


def test_references_of_other_rooms_and_imports():
  modules = {name: types.SimpleNamespace(
      obj=types.SimpleNamespace(**attributes), get=lambda name: None)
             for name, attributes in {
                 'p': {}, 'p.a': {}, 'p.a.sums': {'total': 0},
                 'p.b': {}, 'p.b.user': {}, 'p.b.sums': {}}.items()}
  # A name is looked up in the module beside it first, then in those above.
  assert docstrings.resolve('sums.total', 'p.b.user', modules) == (
      'p.b.sums', 'total')
  assert not docstrings.exists('p.b.sums', 'total', modules)
  assert docstrings.resolve('a.sums.total', 'p.b.user', modules) == (
      'p.a.sums', 'total')
  assert docstrings.resolve('numpy.sum', 'p.b.user', modules) is None


@pytest.mark.slow
def test_no_docstring_would_be_shown_as_something_else():
  problems = []
  for path in sorted((_ROOT / 'dpjax').rglob('*.py')):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
          not getattr(node, 'name', '').startswith('_')):
        problems += [f'{path}: {line}' for line in docstrings.unintended(
            ast.get_docstring(node) or '')]
  assert not problems


@pytest.mark.slow
def test_all_docstrings_hold(tmp_path):
  assert not reference.build(reference.module_names('dpjax'), tmp_path)
