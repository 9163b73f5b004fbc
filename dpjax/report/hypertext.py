"""Pieces of a web page that holds all it shows: text, tables, drawings.

Nothing here refers to anything outside: drawings become part of the page, and
what they say of namespaces and of where they come from is left out.
"""

from collections.abc import Iterator, Sequence
import html
import re

_SVG = re.compile(r'<svg\b([^>]*)>(.*)</svg>', re.DOTALL)
_BOX = re.compile(r'\bviewBox="([-\d. ]+)"')
_LEFT_OUT = re.compile(
    r'<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->', re.DOTALL)
# All that an SVG names things by; a page has one name space for all of them.
_NAME = re.compile(r'\b(id=")|(\bhref="#)|(url\(#)')
_RULE = re.compile(r'\|[ :|-]+\|')
_CELL = re.compile(r'(?<!\\)\|')
_CODE = re.compile(r'`([^`]+)`')


def escape(text: object) -> str:
  """Returns any text as a page shows it."""
  return html.escape(str(text))


def inline(text: str) -> str:
  """Returns a line of Markdown: `code` is set apart, all else is as it is."""
  return _CODE.sub(r'<code>\1</code>', escape(text))


def table(headers: Sequence[str], lines: Sequence[Sequence[str]],
          classes: Sequence[str] = ()) -> str:
  """Returns a table that scrolls by itself where it is too wide.

  Args:
    headers: of the columns, in the Markdown of `inline`.
    lines: likewise, the cells of each line.
    classes: of each line, none for lines without.
  """
  classes = classes or [''] * len(lines)
  head = ''.join(f'<th>{inline(text)}</th>' for text in headers)
  body = ''.join(
      f'<tr{_class(name)}>' + ''.join(f'<td{_align(text)}>{inline(text)}</td>'
                                      for text in line) + '</tr>\n'
      for line, name in zip(lines, classes, strict=True))
  return (f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
          f'<tbody>\n{body}</tbody></table></div>\n')


def markdown(text: str) -> str:
  """Returns what reports write, paragraphs, headings and tables, as HTML."""
  return ''.join(_block(lines) for lines in _blocks(text))


def figure(svg: str, name: str) -> str:
  """Returns a drawing as a part of a page.

  Args:
    svg: text of the file.
    name: unique in the page, a word; begins every id of the drawing.

  Raises:
    ValueError: the text is no drawing with a viewBox.
  """
  found = _SVG.search(svg)
  box = found and _BOX.search(found.group(1))
  if not box:
    raise ValueError(f'{name}: not an SVG with a viewBox')
  width = float(box.group(1).split()[2])
  inside = _LEFT_OUT.sub('', found.group(2)).replace('xlink:href', 'href')
  inside = _NAME.sub(lambda match: f'{match.group(0)}{escape(name)}-', inside)
  # Points of a drawing are pixels of a page; it shrinks with the window.
  return (f'<svg viewBox="{box.group(1)}" role="img" '
          f'aria-label="figure of {escape(name)}" '
          f'style="width:{width * 4 / 3:.0f}px">{inside}</svg>\n')


def _class(name: str) -> str:
  return f' class="{escape(name)}"' if name else ''


def _align(text: str) -> str:
  """Numbers stand to the right, so that digits are below each other."""
  try:
    float(text.removesuffix('%'))
  except ValueError:
    return ''
  return ' class="number"'


def _blocks(text: str) -> Iterator[list[str]]:
  """Lines that belong together: those between blank ones."""
  for block in re.split(r'\n\s*\n', text.strip()):
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    # A paragraph may go before its table without a blank line.
    start = next((index for index, line in enumerate(lines)
                  if line.startswith('|')), len(lines))
    for part in (lines[:start], lines[start:]):
      if part:
        yield part


def _block(lines: list[str]) -> str:
  if lines[0].startswith('#'):
    rest = f'<p>{inline(" ".join(lines[1:]))}</p>\n' if lines[1:] else ''
    return f'<h4>{inline(lines[0].lstrip("# "))}</h4>\n{rest}'
  if len(lines) > 1 and _RULE.fullmatch(lines[1]):
    return table(_cells(lines[0]), [_cells(line) for line in lines[2:]])
  if all(line.startswith('- ') for line in lines):
    return '<ul>' + ''.join(f'<li>{inline(line[2:])}</li>'
                            for line in lines) + '</ul>\n'
  return f'<p>{inline(" ".join(lines))}</p>\n'


def _cells(line: str) -> list[str]:
  return [cell.strip().replace(r'\|', '|')
          for cell in _CELL.split(line.strip()[1:-1])]
