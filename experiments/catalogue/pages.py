"""Renders the catalogue as text: all items with our results, and the errata."""

import collections
from collections.abc import Iterator, Mapping, Sequence

from dpjax.report import tables
from experiments.catalogue import checks
from experiments.catalogue import items
from experiments.catalogue.items import Item
from experiments.verdicts import Verdict

HEADERS = ('paper', 'item', 'what', 'command', 'status', 'claim', 'printed',
           'ours', 'verdict')
LISTED = ('paper', 'item', 'kind', 'what', 'function', 'test', 'experiment',
          'status')


def status(item: Item) -> str:
  """Returns text such as 'implemented, tested, measured' for an item."""
  if not item.tests:
    return 'text only'
  if item.kind in items.ERRATA:
    return 'shown by a test'
  return ', '.join([
      *(['implemented'] if item.functions else []), 'tested',
      *(['measured'] if item.experiments else [])])


def about(item: Item,
          verdicts: Mapping[str, Sequence[Verdict]]) -> Iterator[Verdict]:
  """Yields the verdicts that an item's claims refer to.

  Args:
    item: the item.
    verdicts: experiment -> verdicts from its rows.

  Raises:
    LookupError: no verdict begins with the text of a claim.
  """
  for claim in item.claims:
    name, _, start = claim.partition(': ')
    matching = [verdict for verdict in verdicts.get(name, ())
             if verdict.claim.startswith(start)]
    if not matching:
      raise LookupError(f'{item.group}/{item.id}: no verdict {claim!r}')
    yield from matching


def table(groups: Sequence[items.Group],
          verdicts: Mapping[str, Sequence[Verdict]]) -> str:
  """Returns a Markdown table for each group, with a line for each claim."""
  return '\n'.join(f'### {group.title}\n\n' + tables.markdown(HEADERS, [
      line for item in group.items for line in _lines(item, verdicts)],
      aligned=False) for group in groups)


def listing(groups: Sequence[items.Group]) -> list[tuple[str, ...]]:
  """Returns for each item its values of the columns `LISTED`."""
  return [(items.PAPERS[item.paper], f'{group.name}/{item.id}', item.kind,
           item.title,
           *(' '.join(names) or '-' for names in (
               item.functions, item.tests, item.experiments)), status(item))
          for group in groups for item in group.items]


def errata(groups: Sequence[items.Group]) -> str:
  """Returns Markdown tables of all errata, one for each paper."""
  parts = []
  counts = collections.Counter(
      item.id for group in groups for item in group.items)
  for paper, name in items.PAPERS.items():
    lines = [(item.place, _ids(item, counts[item.id] == 1), item.kind,
              item.printed, item.holds,
              ', '.join(map(_link, item.tests)) or item.note)
             for group in groups for item in group.items
             if item.kind in items.ERRATA and item.paper == paper]
    if lines:
      parts.append(f'## {name[:1].upper()}{name[1:]}\n\n' + tables.markdown(
          ('place', 'item', 'kind', 'printed', 'what holds', 'shown by'), lines,
          aligned=False))
  return '\n'.join(parts)


def card(item: Item) -> str:
  """Returns one item as text, with paths of its code, tests and results."""
  lines = [f'{item.group}/{item.id}: {item.title}',
           f'  paper       {items.PAPERS[item.paper]}, {item.place}',
           f'  kind        {item.kind}: {items.KINDS[item.kind]}',
           f'  status      {status(item)}']
  for name in item.functions:
    lines.append(f'  function    {name}  {checks.place(name)}')
  for test in item.tests:
    path = test.partition('::')[0]
    lines.append(f'  test        {test}  {path}:{checks.line_of_test(test)}')
  for name in item.experiments:
    lines.append(f'  command     {_command(name)}')
    lines += [f'  {what:<11} experiments/{name}/results/{file}'
              for what, file in (('figure', 'figure.svg'),
                                 ('verdicts', 'table.md'))
              if (checks.ROOT / 'experiments' / name / 'results' / file
                  ).exists()]
  lines += [f'  {field:<11} {getattr(item, field)}'
            for field in ('printed', 'holds', 'note') if getattr(item, field)]
  return '\n'.join(lines)


def _lines(item: Item, verdicts: Mapping[str, Sequence[Verdict]]
           ) -> list[tuple[str, ...]]:
  """Returns the lines of an item in the columns `HEADERS`."""
  place = f'{items.PAPERS[item.paper]}, {item.place}'
  command = ', '.join(f'`{_command(name)}`' for name in item.experiments)
  head = (place, item.id, item.title, command or '-', status(item))
  matching = list(about(item, verdicts))
  if not matching:
    return [(*head, '-', item.printed or '-', item.holds or '-', '-')]
  # Cells that equal the cell above are left empty.
  heads = [head] + [('', item.id, '', '', '')] * (len(matching) - 1)
  return [(*head, each.claim, each.printed, each.ours, each.verdict)
          for head, each in zip(heads, matching, strict=True)]


def _ids(item: Item, unique: bool) -> str:
  """Returns the id of an erratum, and those of the errata that it replaces.

  Args:
    item: the erratum.
    unique: whether no other group has an item of this id.
  """
  name = item.id if unique else f'{item.group}/{item.id}'
  merged = ', '.join(old.partition('/')[2] for old in item.merged)
  return f'{name} (also {merged})' if merged else name


def _command(name: str) -> str:
  return f'python -m launch.sweep --experiment={name}'


def _link(test: str) -> str:
  path, _, name = test.partition('::')
  return f'[{name}](../{path})'
