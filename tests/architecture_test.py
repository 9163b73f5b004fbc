"""Checks import order, sizes of files and functions, docstrings and flags."""

import ast
from collections.abc import Iterator
import functools
import json
import pathlib
import re
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_BASE = {'typing', 'errors', 'floats', 'lazy', 'private_files', 'tree',
         'unpacking'}
_ALLOWED = {
    'privacy': set(),
    'sampling': {'privacy'},
    'stats': {'privacy', 'sampling'},
    'theory': {'privacy', 'sampling', 'stats'},
    'mpc': {'privacy', 'report'},
    'grads': {'privacy'},
    'lipschitz': {'privacy', 'grads'},
    'features': {'privacy', 'data', 'report'},
    'models': {'grads', 'lipschitz'},
    'tables': set(),
    'data': {'tables'},
    'train': {'privacy', 'grads', 'lipschitz', 'models', 'sampling', 'tables'},
    'papers': {'privacy', 'grads', 'lipschitz', 'models', 'sampling', 'train'},
    'runs': {'privacy', 'grads', 'lipschitz', 'models', 'sampling', 'data',
             'train', 'papers', 'report', 'features'},
    'audit': {'privacy', 'grads', 'lipschitz', 'models', 'sampling', 'train'},
    'report': set(),
    'release': {'privacy', 'report', 'stats', 'tables'},
    'studies': {'privacy', 'stats', 'data', 'report', 'tables'},
}
# The audit program may import every package by name.
_ALLOWED['audit/suite'] = _ALLOWED['audit'] | {
    'audit', 'data', 'papers', 'report', 'runs', 'stats', 'theory', 'mpc',
    'release', 'features'}
_ALLOWED['cli'] = {*_ALLOWED, 'audit'} - {'audit/suite'}
_PACKAGE = sorted((_ROOT / 'dpjax').rglob('*.py'))
_CODE = _PACKAGE + sorted((_ROOT / 'experiments').rglob('*.py')) + sorted(
    (_ROOT / 'launch').rglob('*.py'))
_KINDS = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Import,
          ast.ImportFrom, ast.Module)
_TESTS = sorted((_ROOT / 'tests').rglob('*.py'))


def _order(package: str) -> list[str]:
  """Returns the modules that the docstring of a package's __init__ lists."""
  text = (_ROOT / 'dpjax' / package / '__init__.py').read_text()
  listed = re.search(r'Modules, in import order: ([\w,\s]+)\.', text)
  return re.split(r',\s*', listed.group(1)) if listed else []


_ORDERED = [path.parent.name for path in sorted(
    (_ROOT / 'dpjax').glob('*/__init__.py')) if _order(path.parent.name)]


def _name(path: pathlib.Path) -> str:
  return str(path.relative_to(_ROOT))


@functools.cache
def _parsed(path: pathlib.Path) -> ast.Module:
  """Returns a file's syntax tree, which several tests use."""
  return ast.parse(path.read_text())


@functools.cache
def _nodes(path: pathlib.Path) -> dict[type, list[ast.AST]]:
  """Returns a file's definitions and imports at any depth, by type."""
  nodes = {kind: [] for kind in _KINDS}
  for node in ast.walk(_parsed(path)):
    if type(node) in nodes:
      nodes[type(node)].append(node)
  return nodes


def _of_each(items):
  """Makes one test of all items, since a test for each takes longer."""

  def decorate(check):

    @functools.wraps(check)
    def test():
      failed = []
      for item in items:
        try:
          check(item)
        except AssertionError as error:
          failed.append(f'{item}: {error}')
      assert not failed, '\n'.join(failed)

    # Pytest would read the arguments of the wrapped function.
    del test.__wrapped__
    return test

  return decorate


def _imports(path: pathlib.Path, *, top_level_only: bool = False) -> set[str]:
  """Returns the dotted names of everything a file imports."""
  nodes = _nodes(path)[ast.Import] + _nodes(path)[ast.ImportFrom]
  if top_level_only:
    nodes = [node for node in nodes if node in _parsed(path).body]
  return {alias.name if isinstance(node, ast.Import) else
          f'{node.module}.{alias.name}'
          for node in nodes for alias in node.names}


def _package_of(path: pathlib.Path) -> str:
  name = path.relative_to(_ROOT / 'dpjax').parent.as_posix()
  if name in _ALLOWED:
    return name
  return path.relative_to(_ROOT / 'dpjax').parts[0].removesuffix('.py')


@_of_each(_PACKAGE)
def test_packages_import_only_what_is_below(path):
  package = _package_of(path)
  if package == '__init__':
    return
  allowed = _BASE | {package} | _ALLOWED.get(package, set())
  imported = {name.split('.')[1] for name in _imports(path)
              if name.startswith('dpjax.')}
  assert imported <= allowed, f'{package} imports {sorted(imported - allowed)}'


@_of_each(_ORDERED)
def test_modules_of_a_package_import_upwards_only(package):
  order = _order(package)
  folder = _ROOT / 'dpjax' / package
  parts = {path.relative_to(folder).parts[0].removesuffix('.py')
           for path in folder.rglob('*.py')}
  assert parts == set(order) | {'__init__'}
  for path in folder.rglob('*.py'):
    module = path.relative_to(folder).parts[0].removesuffix('.py')
    used = {name.split('.')[2] for name in _imports(path)
            if name.startswith(f'dpjax.{package}.')}
    if module == '__init__':
      continue  # These are public names of any module, imported on demand.
    before = order[:order.index(module)] if module in order else []
    assert used - {module} <= set(before), f'{_name(path)}: {sorted(used)}'


@_of_each(_PACKAGE)
def test_the_package_knows_no_shell(path):
  names = _imports(path)
  for banned in ('experiments', 'launch', 'tensorflow') + (
      () if _package_of(path) == 'cli' else ('absl',)):
    assert not any(name.split('.')[0] == banned for name in names), banned
  if _name(path) not in ('dpjax/privacy/accounting.py',
                         'dpjax/privacy/optimistic.py',
                         'dpjax/privacy/restating.py',
                         'dpjax/privacy/sampled_events.py'):
    assert not any(name.startswith('dp_accounting') for name in names)
  heavy = {'matplotlib', 'pyarrow', 'sklearn', 'tensorflow_datasets'}
  at_import = {name.split('.')[0]
               for name in _imports(path, top_level_only=True)}
  assert not at_import & heavy
  if _package_of(path) in ('report', 'tables'):
    assert 'jax' not in {name.split('.')[0] for name in names}


@_of_each(_CODE + _TESTS)
def test_sizes(path):
  assert path.read_text().count('\n') <= 400
  for node in _nodes(path)[ast.FunctionDef] + _nodes(path)[ast.AsyncFunctionDef]:
    doc = ast.get_docstring(node, clean=False) or ''
    lines = node.end_lineno - node.lineno + 1
    lines -= doc.count('\n') + 1 if doc else 0
    assert lines <= 40, f'{node.name} has {lines} lines'


@_of_each(_CODE)
def test_public_names_have_docstrings(path):
  assert ast.get_docstring(_parsed(path)), 'no module docstring'
  for name, node in _public(_parsed(path).body):
    assert ast.get_docstring(node), f'{name} has no docstring'


@_of_each(_PACKAGE)
def test_public_functions_are_annotated(path):
  for name, node in _public(_parsed(path).body):
    if isinstance(node, ast.FunctionDef):
      assert node.returns is not None, f'{name} returns what?'
      given = node.args
      for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs,
                       *filter(None, (given.vararg, given.kwarg))]:
        assert argument.annotation is not None or argument.arg in (
            'self', 'cls'), f'{name}: what is {argument.arg}?'


def _public(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
  """Yields public functions and classes, and public methods of these."""
  for node in body:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      if not node.name.startswith('_'):
        yield node.name, node
        if isinstance(node, ast.ClassDef):
          yield from ((f'{node.name}.{name}', part)
                      for name, part in _public(node.body))


def test_no_key_or_seed_has_a_default():
  for path in _PACKAGE:
    for node in _nodes(path)[ast.FunctionDef]:
      arguments = node.args.args + node.args.kwonlyargs
      defaults = ([None] * (len(node.args.args) - len(node.args.defaults)) +
                  node.args.defaults + node.args.kw_defaults)
      for argument, default in zip(arguments, defaults, strict=True):
        if argument.arg in ('key', 'keys', 'seed', 'adjacency'):
          # The literal None stands for fresh keys from the system.
          assert default is None or ast.unparse(default) == 'None', f'{_name(path)}: {node.name}'


def test_importing_the_report_release_and_mpc_rooms_needs_no_jax():
  code = ('import sys, dpjax.report.tables, dpjax.report.plots, dpjax.release.registry, '
          'experiments.methods.mechanisms.secure_curves; '
          'sys.exit("jax" in sys.modules or "matplotlib" in sys.modules)')
  assert subprocess.run([sys.executable, '-c', code], cwd=_ROOT,
                        check=False).returncode == 0


def test_importing_all_of_the_package_imports_nothing_heavy():
  """Importing everything loads no extras or slow libraries."""
  code = (
      'import importlib, pkgutil, sys, dpjax\n'
      'assert "jax" not in sys.modules and "numpy" not in sys.modules\n'
      'for module in pkgutil.walk_packages(dpjax.__path__, "dpjax."):\n'
      '  # Programs import absl.app.\n'
      '  if not module.name.startswith("dpjax.cli."):\n'
      '    importlib.import_module(module.name)\n'
      'heavy = {"PIL", "absl.app", "cryptography", "matplotlib", "orbax",\n'
      '         "pandas", "pyarrow", "sklearn", "submitit", "tensorflow",\n'
      '         "tensorflow_datasets", "torch"}\n'
      'sys.exit(" ".join(heavy & set(sys.modules)) or None)')
  done = subprocess.run([sys.executable, '-c', code], cwd=_ROOT, check=False,
                        capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


_FIXED = re.compile(r'(?<!`)jax\.random\.(?:key|PRNGKey)\(\s*\w+\s*[,)]')
_EXCUSES = ('# Reproducible: for research, not for a release.', '# Public: ')


def _examples() -> Iterator[tuple[str, list[str]]]:
  """Yields lines of the README, of notebooks and of docstring examples."""
  yield 'README.md', (_ROOT / 'README.md').read_text().splitlines()
  for path in sorted((_ROOT / 'launch').rglob('*.ipynb')):
    for cell in json.loads(path.read_text())['cells']:
      yield path.name, ''.join(cell['source']).splitlines()
  for path in _CODE:
    for kind in (ast.Module, ast.ClassDef, ast.FunctionDef):
      for node in _nodes(path)[kind]:
        lines = (ast.get_docstring(node) or '').splitlines()
        yield _name(path), [line for line in map(str.strip, lines)
                            if line.startswith(('>>> ', '... '))]


def test_examples_with_a_fixed_key_say_that_they_are_no_release():
  """Examples with a fixed key say so, since copies would have a known key."""
  seen, bare = 0, []
  for name, lines in _examples():
    for above, line in zip(['', *lines], lines, strict=False):
      if _FIXED.search(line):
        seen += 1
        if not any(excuse in above + line for excuse in _EXCUSES):
          bare.append(f'{name}: {line.strip()}')
  assert seen > 15 and not bare, '\n'.join(bare)
