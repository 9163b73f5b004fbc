"""Tests bibliography entries, and the works that proofs cite."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.every(1)

_ROOT = pathlib.Path(__file__).parents[1]
_PROOFS = sorted((_ROOT / 'docs' / 'theory').glob('*.md'))
_ENTRY = re.compile(r'@(\w+)\{(\w+),\n(.*?)\n\}', re.DOTALL)
_PLAIN = {"\\'c": 'c', "\\'e": 'e', "\\'E": 'E', '\\`a': 'a', '\\`e': 'e'}


def _entries():
  """Returns key -> (kind, field -> value) of the bibliography."""
  text = (_ROOT / 'docs' / 'references.bib').read_text(encoding='utf-8')
  entries = _ENTRY.findall(text)
  assert len(entries) == len(re.findall(r'^@', text, re.MULTILINE))
  assert len({key for _, key, _ in entries}) == len(entries)
  return {key: (kind, dict(re.findall(r'(\w+) = \{?(.*?)\}?,?$', body,
                                      re.MULTILINE)))
          for kind, key, body in entries}


def _surnames(author):
  for accent, letter in _PLAIN.items():
    author = author.replace('{' + accent + '}', letter)
  return [name.partition(',')[0] for name in author.split(' and ')]


def test_entries_are_whole():
  for key, (kind, fields) in _entries().items():
    wanted = {'article': {'author', 'year', 'journal'}, 'phdthesis': {
        'author', 'year', 'school'}, 'inproceedings': {
            'author', 'year', 'booktitle'}, 'book': {
                'author', 'year', 'publisher'}, 'misc': {'note'}}[kind]
    assert wanted | {'title'} <= fields.keys(), key
    if kind != 'misc':
      assert key.endswith(fields['year']), key
      first = _surnames(fields['author'])[0].replace('-', '')
      assert key.startswith(first), key


def test_every_entry_is_cited():
  """Each entry is cited by first surname and year within one sentence."""
  text = '\n'.join(path.read_text(encoding='utf-8') for folder in (
      'dpjax', 'docs', 'experiments') for path in (_ROOT / folder).rglob('*')
                   if path.suffix in ('.py', '.md', '.toml'))
  text = text.replace('ć', 'c').replace('et al.', 'et al')
  for key, (kind, fields) in _entries().items():
    if kind != 'misc':
      name = _surnames(fields['author'])[0]
      assert re.search(rf'{name}[^.;]{{0,80}}\b{fields["year"]}\b', text), key


@pytest.mark.parametrize('path', _PROOFS, ids=lambda path: path.stem)
def test_works_cited_in_parentheses_have_an_entry(path):
  """'Surname (year)' in a proof names an entry of that author and year."""
  if path.stem == 'literature':  # It is a table of its own, without entries.
    return
  known = {(name, fields['year']) for kind, fields in _entries().values()
           if kind != 'misc' for name in _surnames(fields['author'])}
  text = path.read_text(encoding='utf-8').replace('ć', 'c')
  cited = [(name, year) for name, years in re.findall(
      r'([A-Z]\w+) \((\d{4}(?:, \d{4})*)', text) for year in years.split(', ')]
  assert not set(cited) - known
