"""Parts of a self-contained web page: text, tables, figures.

The page refers to no other file. SVG figures are embedded, without their
metadata, style sheets and comments.
"""

from collections.abc import Iterator, Sequence
import html
import re

_SVG = re.compile(r'<svg\b([^>]*)>(.*)</svg>', re.DOTALL)
_BOX = re.compile(r'\bviewBox="([-\d. ]+)"')
_LEFT_OUT = re.compile(
    r'<metadata>.*?</metadata>|<style\b.*?</style>|<!--.*?-->', re.DOTALL)
# All places where an SVG defines or uses an id; ids are shared by a whole page.
_NAME = re.compile(r'\b(id=")|(\bhref="#)|(url\(#)')
_RULE = re.compile(r'\|[ :|-]+\|')
_CELL = re.compile(r'(?<!\\)\|')
_CODE = re.compile(r'`([^`]+)`')


def escape(text: object) -> str:
  """Returns a text with HTML's special characters escaped."""
  return html.escape(str(text))


def inline(text: str) -> str:
  """Returns a line of text as HTML, in which only `code` is marked up."""
  return _CODE.sub(r'<code>\1</code>', escape(text))


def table(headers: Sequence[str], lines: Sequence[Sequence[str]],
          classes: Sequence[str] = ()) -> str:
  """Returns an HTML table that scrolls horizontally if it is too wide.

  Args:
    headers: headers of the columns, in the Markdown of `inline`.
    lines: cells of each line, in the same Markdown.
    classes: CSS class of each line, '' for none; empty if no line has one.
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
  """Returns the Markdown of reports as HTML: paragraphs, headings, tables."""
  return ''.join(_block(lines) for lines in _blocks(text))


def figure(svg: str, name: str) -> str:
  """Returns an SVG figure as a part of a page.

  Args:
    svg: text of the SVG file.
    name: a word, unique in the page; the prefix of all ids of the figure.

  Raises:
    ValueError: if the text is no SVG with a viewBox.
  """
  element = _SVG.search(svg)
  box = element and _BOX.search(element.group(1))
  if not box:
    raise ValueError(f'{name}: not an SVG with a viewBox')
  width = float(box.group(1).split()[2])
  inside = _LEFT_OUT.sub('', element.group(2)).replace('xlink:href', 'href')
  inside = _NAME.sub(lambda match: f'{match.group(0)}{escape(name)}-', inside)
  # A figure's size is in points, of 4/3 CSS pixels; it shrinks with the window.
  return (f'<svg viewBox="{box.group(1)}" role="img" '
          f'aria-label="figure of {escape(name)}" '
          f'style="width:{width * 4 / 3:.0f}px">{inside}</svg>\n')


def _class(name: str) -> str:
  """Returns the class attribute of an element; '' without a class."""
  return f' class="{escape(name)}"' if name else ''


def _align(text: str) -> str:
  """Returns the class of cells with numbers, which are aligned to the right."""
  try:
    float(text.removesuffix('%'))
  except ValueError:
    return ''
  return ' class="number"'


def _blocks(text: str) -> Iterator[list[str]]:
  """Yields blocks of lines, which blank lines or the start of a table end."""
  for block in re.split(r'\n\s*\n', text.strip()):
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    # A table may follow its paragraph without a blank line.
    start = next((index for index, line in enumerate(lines)
                  if line.startswith('|')), len(lines))
    for part in (lines[:start], lines[start:]):
      if part:
        yield part


def _block(lines: list[str]) -> str:
  """Returns a heading, table, list or paragraph as HTML."""
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
  """Returns the cells of a line of a Markdown table."""
  return [cell.strip().replace(r'\|', '|')
          for cell in _CELL.split(line.strip()[1:-1])]
