"""Writes the reference: HTML pages from the docstrings of all modules.

Prints a line and fails for every docstring that names something that does not
exist or would be misrendered, and for modules that cannot be imported:
  python -m launch.reference --output_dir=build/docs

Begin with `index.html` of that folder. `./launch/docs` installs the
requirements first. Neither this program nor the pages use the network.
"""

from collections.abc import Mapping, Sequence
import contextlib
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import types
from typing import Any
import warnings

from absl import flags

from dpjax.cli import errors
from dpjax.cli import flags as shared
from launch import docstrings

for _name in ('output_dir', 'traceback'):
  flags.declare_key_flag(_name)

PACKAGE = 'dpjax'

# Dotted names in backquotes, in the form that they have in the pages.
_SPAN = re.compile(r'<code>((?!\d)\w+(?:\.\w+)+)(\(\))?</code>')


def main(argv: Sequence[str]) -> int:
  """Writes the pages; returns 1 if a docstring is wrong."""
  errors.check_no_arguments(argv)
  folder = pathlib.Path(shared.OUTPUT_DIR.value or 'build/docs')
  problems = build(module_names(PACKAGE), folder)
  for problem in problems:
    print(f'wrong: {problem}', file=sys.stderr)
  print(folder / 'index.html')
  return 1 if problems else 0


def module_names(package: str) -> list[str]:
  """Returns the dotted names of a package and of all modules in it."""
  path = importlib.import_module(package).__path__
  return [package] + sorted(
      info.name for info in pkgutil.walk_packages(path, f'{package}.'))


def build(names: Sequence[str], folder: pathlib.Path) -> list[str]:
  """Writes a page for each module below `folder`.

  Args:
    names: dotted names of modules; includes the packages that they are in.
    folder: folder for the pages; created if missing.

  Returns:
    Problems, one line each: warnings of pdoc, references to names that do not
    exist, and lines that would be misrendered.

  Raises:
    ImportError: if pdoc (extra `docs`) or a module cannot be imported.
  """
  import pdoc
  import pdoc.doc
  import pdoc.render

  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    pages = {name: pdoc.doc.Module(_import(name)) for name in names}
    for page in pages.values():
      _complete(page, pages)
    problems = _Filters(pages).install()
    pdoc.render.configure(docformat='google',
                          footer_text=f'{PACKAGE} {_version()}')
    for name, page in pages.items():
      _write(folder / f'{name.replace(".", "/")}.html',
             pdoc.render.html_module(page, pages))
    _write(folder / 'index.html', pdoc.render.html_index(pages))
    _write(folder / 'search.js', pdoc.render.search_index(pages))
  return sorted(set(problems) | {
      ' '.join(str(warning.message).split()) for warning in caught
      # Only those of pdoc: modules imported here may give warnings as well.
      if pathlib.Path(pdoc.__file__).parent in
      pathlib.Path(warning.filename).parents})


def _import(name: str) -> types.ModuleType:
  """Imports a module, with the public names that it imports on demand.

  pdoc shows what is there, and does not ask a module's `__getattr__`.
  """
  module = importlib.import_module(name)
  for public in getattr(module, '__all__', ()):
    with contextlib.suppress(ImportError):  # pdoc reports it
      getattr(module, public, None)
  return module


def _version() -> str:
  return importlib.import_module(PACKAGE).__version__


def _write(path: pathlib.Path, text: str) -> None:
  """Writes a file and creates its folder."""
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def _complete(page: Any, pages: Mapping[str, Any]) -> None:
  """Completes what pdoc finds in a module.

  Adds all modules of a package and compiled functions, and removes the
  documentation of classes and fields of other libraries.
  """
  from pdoc import doc

  page.submodules = [other for name, other in pages.items()
                     if name.rpartition('.')[0] == page.modulename]
  for name, member in list(page.members.items()):
    inner = inspect.unwrap(member.obj) if member.kind == 'variable' else None
    if inspect.isfunction(inner):
      page.members[name] = doc.Function(
          page.modulename, name, inner, (page.modulename, name))
    # An alias of another library's class, which is documented there.
    elif member.kind == 'class' and not _is_ours(member.obj, page):
      page.members[name] = doc.Variable(
          page.modulename, name, docstring='', annotation=doc.empty,
          default_value=member.obj, taken_from=(page.modulename, name))
    elif member.kind == 'class':
      for field in member.members.values():
        if re.match(r'Alias for field number|Create new instance of',
                    field.docstring):
          field.docstring = ''


def _is_ours(item: Any, page: Any) -> bool:
  """Returns whether an item is defined in the page's package."""
  return item.__module__.split('.')[0] == page.modulename.split('.')[0]


class _Filters:
  """pdoc filters that render docstrings with links between modules."""

  def __init__(self, pages: Mapping[str, Any]) -> None:
    self._pages = pages
    self._problems: list[str] = []

  def install(self) -> list[str]:
    """Replaces pdoc's filters; returns the list of problems they will fill."""
    import jinja2
    from pdoc import render
    from pdoc import render_helpers

    @jinja2.pass_context
    def to_markdown(context: Any, docstring: str) -> str:
      module = context['module'].modulename
      self._problems.extend(
          f'{module}: {line}' for line in docstrings.unintended(docstring))
      return render_helpers.to_markdown_with_context(
          context, docstrings.to_markdown(docstring))

    @jinja2.pass_context
    def linkify(context: Any, code: str, namespace: str = '',
                shorten: bool = True) -> str:
      module = context['module'].modulename
      linked = _SPAN.sub(lambda span: self._link(span, module, namespace),
                         str(code))
      return render_helpers.linkify(context, linked, namespace, shorten)

    render.env.filters['to_markdown'] = to_markdown
    render.env.filters['linkify'] = linkify
    return self._problems

  def _link(self, span: re.Match[str], module: str, namespace: str) -> str:
    """Returns a dotted name with a link to its page, if it has one."""
    from pdoc import render_helpers

    dotted, call = span[1], span[2] or ''
    resolved = docstrings.resolve(dotted, module, self._pages)
    if resolved is None or dotted.split('.')[0] in self._local(module,
                                                               namespace):
      return span[0]
    if not docstrings.exists(*resolved, self._pages):
      self._problems.append(
          f'{module}: {namespace or "docstring"} names `{dotted}`, which is '
          'not there')
      return span[0]
    target, name = resolved
    if name and self._pages[target].get(name) is None:
      return span[0]
    link = render_helpers.relative_link(module, target)
    return (f'<code><a href="{link}{"#" if name else ""}{name}">{dotted}{call}'
            '</a></code>')

  def _local(self, module: str, namespace: str) -> set[str]:
    """Returns names of arguments and fields, which hide those of modules."""
    page, names = self._pages[module], set()
    parts = namespace.split('.')
    for size in range(1, len(parts) + 1):
      member = page.get('.'.join(parts[:size]))
      if member is not None and member.kind == 'class':
        names |= set(member.members)
      elif member is not None and member.kind == 'function':
        names |= set(member.signature.parameters)
    return names


if __name__ == '__main__':
  errors.run_main(main)
