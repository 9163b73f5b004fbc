"""A self-contained web page with the results of many experiments."""

from collections.abc import Sequence
from typing import NamedTuple

from experiments import hypertext
from experiments import verdicts as verdicts_lib

_STYLE = '''
:root { color-scheme: light dark; --ink: #1b1d21; --paper: #fdfdfc;
  --line: #d5d7db; --soft: #f1f2f4; --link: #0b57a4; --good: #11692f;
  --bad: #a11d12; --open: #73510a; --none: #5b6068; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea;
  --paper: #16181c; --line: #3a3e45; --soft: #22252b; --link: #8ab8f2;
  --good: #7bd193; --bad: #ff9d92; --open: #e8bf6d; --none: #a3a9b3; } }
body { margin: 0 auto; max-width: 75rem; padding: 1rem 1.5rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
a { color: var(--link); }
h1, h2, h3, h4 { line-height: 1.25; }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
section { margin-top: 3rem; }
code { background: var(--soft); padding: .1em .3em; border-radius: .2em;
  font-size: .9em; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem;
  border-bottom: 1px solid var(--line); }
th { background: var(--soft); white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--none); } dd { margin: 0; }
figure { margin: 1rem 0; background: #fff; padding: .5rem; overflow-x: auto;
  border: 1px solid var(--line); }
figure svg { max-width: 100%; height: auto; display: block; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
details summary { cursor: pointer; color: var(--link); }
.agrees td:nth-child(4), b.agrees { color: var(--good); font-weight: 600; }
.differs td:nth-child(4), b.differs { color: var(--bad); font-weight: 600; }
.not-comparable td:nth-child(4), b.not-comparable { color: var(--open);
  font-weight: 600; }
.not-run td:nth-child(4), b.not-run { color: var(--none); font-weight: 600; }
.error { color: var(--bad); }
.tally b { margin-right: 1.5rem; font-size: 1.15rem; }
@media print { details > * { display: block; } figure { break-inside: avoid; } }
'''


class Section(NamedTuple):
  """The section of the page about one experiment.

  Attributes:
    name: name of the experiment, one word; unique.
    title: the artefact that it reproduces and the paper.
    facts: pairs (term, text) shown above the tables; texts are in the Markdown
      of `hypertext.inline`.
    verdicts: verdicts on the paper's claims.
    notes: one line each on what was left out or replaced.
    error: reason of a failure in one line; '' if there is none.
    table: Markdown of the table; '' without one.
    figure: SVG of the figure; '' without one.
  """
  name: str
  title: str
  facts: Sequence[tuple[str, str]] = ()
  verdicts: Sequence[verdicts_lib.Verdict] = ()
  notes: Sequence[str] = ()
  error: str = ''
  table: str = ''
  figure: str = ''


def render(title: str, facts: Sequence[tuple[str, str]],
           sections: Sequence[Section]) -> str:
  """Returns a complete HTML document, which refers to no other file.

  The ids of a figure are prefixed with the name of its section, so that figures
  do not use each other's clip paths.

  Args:
    title: title of the page.
    facts: pairs (term, text) shown at the top.
    sections: the sections in order.

  Raises:
    ValueError: if two sections have the same name or a figure is no SVG.
  """
  names = [section.name for section in sections]
  if len(set(names)) < len(names):
    raise ValueError(f'sections must have different names, got {names}')
  return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
          '<meta name="viewport" content="width=device-width">\n'
          f'<title>{hypertext.escape(title)}</title>\n'
          f'<style>{_STYLE}</style>\n</head>\n<body>\n'
          f'<h1>{hypertext.inline(title)}</h1>\n'
          f'{_tally(sections)}{_facts(facts)}{_left_out(sections)}'
          f'{_contents(sections)}'
          f'{"".join(map(_section, sections))}</body>\n</html>\n')


def _facts(facts: Sequence[tuple[str, str]]) -> str:
  """Returns pairs (term, text) as a description list."""
  lines = ''.join(f'<dt>{hypertext.escape(what)}</dt>'
                  f'<dd>{hypertext.inline(text)}</dd>\n'
                  for what, text in facts)
  return f'<dl>\n{lines}</dl>\n' if lines else ''


def _outcome(outcome: str) -> str:
  """Returns the CSS class of an outcome."""
  return outcome.replace(' ', '-')


def _tally(sections: Sequence[Section]) -> str:
  """Returns a paragraph with the number of verdicts of each outcome."""
  outcomes = [verdict.verdict for section in sections
              for verdict in section.verdicts]
  words = ''.join(f'<b class="{_outcome(outcome)}">{outcomes.count(outcome)} '
                  f'{outcome}</b>' for outcome in verdicts_lib.OUTCOMES)
  return f'<p class="tally">{words}</p>\n'


def _left_out(sections: Sequence[Section]) -> str:
  """Returns a list of all errors and notes, with links to their sections."""
  lines = [
      f'<li{" class=error" if section.error == text else ""}>'
      f'<a href="#{section.name}">{section.name}</a>: '
      f'{hypertext.inline(text)}</li>\n'
      for section in sections
      for text in ([section.error] if section.error else []) + list(
          section.notes)]
  if not lines:
    return ''
  return ('<h2>Failed, not run, or stood in for</h2>\n'
          f'<ul>\n{"".join(lines)}</ul>\n')


def _contents(sections: Sequence[Section]) -> str:
  """Returns the table of contents."""
  lines = ''.join(
      f'<tr><td><a href="#{section.name}">{section.name}</a></td>'
      f'<td>{hypertext.inline(section.title)}</td>'
      f'<td>{_brief(section)}</td></tr>\n' for section in sections)
  return ('<h2>Contents</h2>\n<div class="wide"><table>\n<thead><tr><th>'
          'experiment</th><th>artefact</th><th>verdicts</th></tr></thead>\n'
          f'<tbody>\n{lines}</tbody></table></div>\n')


def _brief(section: Section) -> str:
  """Returns the verdicts of a section in a few words."""
  if section.error:
    return '<span class="error">failed</span>'
  return hypertext.escape(verdicts_lib.tally(section.verdicts) or '-')


def _section(section: Section) -> str:
  """Returns a section as HTML."""
  parts = [f'<section id="{section.name}">\n<h2>{section.name}</h2>\n'
           f'<p>{hypertext.inline(section.title)}</p>\n',
           _facts(section.facts)]
  if section.error:
    parts.append(f'<p class="error">{hypertext.inline(section.error)}</p>\n')
  parts += [f'<p>{hypertext.inline(note)}</p>\n' for note in section.notes]
  if section.verdicts:
    parts.append(hypertext.table(
        verdicts_lib.HEADERS, section.verdicts,
        [_outcome(verdict.verdict) for verdict in section.verdicts]))
  if section.figure:
    drawn = hypertext.figure(section.figure, section.name)
    parts.append(f'<figure>\n{drawn}</figure>\n')
  if section.table:
    parts.append('<details><summary>table</summary>\n'
                 f'{hypertext.markdown(section.table)}</details>\n')
  return ''.join(parts) + '</section>\n'
