"""Markdown and LaTeX tables; equal rows give identical text."""

from collections.abc import Sequence
import math

_LATEX = {'\\': r'\textbackslash{}', '&': r'\&', '%': r'\%', '$': r'\$',
          '#': r'\#', '_': r'\_', '{': r'\{', '}': r'\}',
          '~': r'\textasciitilde{}', '^': r'\textasciicircum{}'}


def number(value: float | None, *, digits: int = 3) -> str:
  """Returns a number with `digits` decimals; '-' for None or NaN."""
  if value is None or math.isnan(value):
    return '-'
  return f'{value:.{digits}f}'


def _check(headers: Sequence[str],
           lines: Sequence[Sequence[object]]) -> list[list[str]]:
  """Returns the cells as text; raises unless lines match the headers."""
  for line in lines:
    if len(line) != len(headers):
      raise ValueError(f'{len(headers)} headers but {len(line)} cells in '
                       f'{list(line)}')
  return [[str(text) for text in line] for line in lines]


def markdown(headers: Sequence[str], lines: Sequence[Sequence[object]], *,
             aligned: bool = True) -> str:
  """Returns a Markdown table, ending with a newline.

  Args:
    headers: headers of the columns.
    lines: cells of each line.
    aligned: whether to pad the columns to equal widths.

  Examples:
    >>> from dpjax.report import tables
    >>> table = tables.markdown(['n', 'error'], [[10, 0.5], [1000, 0.05]])
    >>> print(table, end='')
    | n    | error |
    | ---- | ----- |
    | 10   | 0.5   |
    | 1000 | 0.05  |
  """
  table = [[text.replace('|', r'\|').replace('\n', ' ') for text in line]
           for line in [list(headers), *_check(headers, lines)]]
  widths = [max(3, *map(len, column)) if aligned else 3
            for column in zip(*table, strict=True)]
  table.insert(1, ['-' * width for width in widths])
  return ''.join(
      '| ' + ' | '.join(text.ljust(width) for text, width
                        in zip(line, widths, strict=True)) + ' |\n'
      for line in table)


def latex(headers: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
  """Returns a LaTeX tabular with booktabs rules; arguments as `markdown`."""
  table = [' & '.join(''.join(_LATEX.get(sign, sign) for sign in text)
                      for text in line) + r' \\' + '\n'
           for line in [list(headers), *_check(headers, lines)]]
  return (f'\\begin{{tabular}}{{{"l" * len(headers)}}}\n\\toprule\n{table[0]}'
          f'\\midrule\n{"".join(table[1:])}\\bottomrule\n\\end{{tabular}}\n')


def replace_block(text: str, name: str, body: str) -> str:
  """Replaces the part of a text between two markers.

  The markers are `<!-- begin: NAME -->` and `<!-- end: NAME -->`.

  Raises:
    ValueError: unless each marker occurs once, in this order.
  """
  begin, end = f'<!-- begin: {name} -->', f'<!-- end: {name} -->'
  start, stop = text.find(begin), text.find(end)
  if not 0 <= start < stop or text.count(begin) + text.count(end) != 2:
    raise ValueError(f'there must be one {begin} and then one {end}')
  return f'{text[:start]}{begin}\n{body.strip()}\n{text[stop:]}'
