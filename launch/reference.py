"""Makes the reference: pages of HTML from the docstrings of all modules.

Fails, with a line for each, if a docstring names what is not there or would be
shown as something else, and if a module cannot be imported:
  python -m launch.reference --output_dir=build/docs

Begin with `index.html` of that folder. `./launch/docs` installs what is needed
first. Nothing is fetched, neither here nor by the pages.
"""

from collections.abc import Mapping, Sequence
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
from typing import Any
import warnings

from absl import flags

from launch import docstrings
from launch import errors
from launch import flags as shared

for _name in ('output_dir', 'traceback'):
  flags.declare_key_flag(_name)

PACKAGE = 'dpjax'

# Names with dots between backquotes, as they are in the pages.
_SPAN = re.compile(r'<code>((?!\d)\w+(?:\.\w+)+)(\(\))?</code>')


def main(argv: Sequence[str]) -> int:
  """Writes the pages; 1 if something in a docstring is wrong."""
  errors.check_no_arguments(argv)
  folder = pathlib.Path(shared.OUTPUT_DIR.value or 'build/docs')
  problems = build(module_names(PACKAGE), folder)
  for problem in problems:
    print(f'wrong: {problem}', file=sys.stderr)
  print(folder / 'index.html')
  return 1 if problems else 0


def module_names(package: str) -> list[str]:
  """Dotted names of a package and of all modules in it."""
  path = importlib.import_module(package).__path__
  return [package] + sorted(
      found.name for found in pkgutil.walk_packages(path, f'{package}.'))


def build(names: Sequence[str], folder: pathlib.Path) -> list[str]:
  """Writes a page for each module below `folder`.

  Args:
    names: dotted names of modules; each with the package that it is in.
    folder: made if it is not there.

  Returns:
    What is wrong, a line each: warnings of the generator, references to what
    is not there, and lines that would be shown as something else.

  Raises:
    ImportError: without pdoc (extra `docs`), or where a module cannot be
      imported.
  """
  import pdoc
  import pdoc.doc
  import pdoc.render

  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    pages = {name: pdoc.doc.Module(importlib.import_module(name))
             for name in names}
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
      # Modules that are imported here for the first time may have their own.
      if pathlib.Path(pdoc.__file__).parent in
      pathlib.Path(warning.filename).parents})


def _version() -> str:
  return importlib.import_module(PACKAGE).__version__


def _write(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def _complete(page: Any, pages: Mapping[str, Any]) -> None:
  """All modules of a package, compiled functions, no words of libraries."""
  from pdoc import doc

  page.submodules = [other for name, other in pages.items()
                     if name.rpartition('.')[0] == page.modulename]
  for name, member in list(page.members.items()):
    inner = inspect.unwrap(member.obj) if member.kind == 'variable' else None
    if inspect.isfunction(inner):
      page.members[name] = doc.Function(
          page.modulename, name, inner, (page.modulename, name))
    # Another name of a class of a library: its documentation is there.
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
  return item.__module__.split('.')[0] == page.modulename.split('.')[0]


class _Filters:
  """What turns docstrings into HTML, with references from module to module."""

  def __init__(self, pages: Mapping[str, Any]) -> None:
    self._pages = pages
    self._problems: list[str] = []

  def install(self) -> list[str]:
    """Replaces the filters of the generator; the list fills as it renders."""
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
    from pdoc import render_helpers

    dotted, call = span[1], span[2] or ''
    found = docstrings.resolve(dotted, module, self._pages)
    if found is None or dotted.split('.')[0] in self._local(module, namespace):
      return span[0]
    if not docstrings.exists(*found, self._pages):
      self._problems.append(
          f'{module}: {namespace or "docstring"} names `{dotted}`, which is '
          'not there')
      return span[0]
    target, name = found
    if name and self._pages[target].get(name) is None:
      return span[0]
    link = render_helpers.relative_link(module, target)
    return (f'<code><a href="{link}{"#" if name else ""}{name}">{dotted}{call}'
            '</a></code>')

  def _local(self, module: str, namespace: str) -> set[str]:
    """Names of arguments and fields, which may be those of modules too."""
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
