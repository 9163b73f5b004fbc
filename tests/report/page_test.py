"""Pages: whole, without anything from outside, and nothing slips through."""

import collections
from html import parser
import re

import pytest

from dpjax.report import hypertext
from dpjax.report import page
from dpjax.report import plots
from dpjax.report import verdicts

_VOID = {'meta', 'br', 'hr', 'img', 'link', 'input'}


class _Reader(parser.HTMLParser):
  """Notes tags, ids and text, and that what is opened is closed."""

  def __init__(self):
    super().__init__()
    self.open, self.ids, self.refs = [], [], []
    self.tags = collections.Counter()
    self.text = ''

  def handle_starttag(self, tag, attrs):
    self.handle_startendtag(tag, attrs)
    if tag not in _VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag, attrs):
    self.tags[tag] += 1
    for name, value in attrs:
      if name == 'id':
        self.ids.append(value)
      if name in ('href', 'xlink:href', 'src', 'action', 'data'):
        self.refs.append(value)
      self.refs += re.findall(r'url\((.*?)\)', value or '')

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.text += data


def _read(text):
  reader = _Reader()
  reader.feed(text)
  reader.close()
  assert not reader.open
  return reader


def _drawing(tmp_path, label):
  figure, axes = plots.new()
  plots.error_bars(axes[0, 0], [1, 2], [3, 4], [.1, .2], label)
  path = tmp_path / 'figure.svg'
  plots.save(figure, path, digest='0' * 64)
  return path.read_text()


_VERDICTS = (
    verdicts.Verdict('a < b', '1', '2 & 3', verdicts.DIFFERS, '<script>'),
    verdicts.Verdict('c', '-', '-', verdicts.NOT_RUN, 'no rows'),
    verdicts.Verdict('d', '1', '1', verdicts.AGREES, 'equal'))
_TABLE = ('Errors of `tight` <b>.\n| n | error |\n| --- | --- |\n'
          '| 10 | 0.5 |\n| a\\|b | - |\n\n- one\n- two\n\n### More\n')


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  """A page of two experiments with the same figure, one that failed."""
  svg = _drawing(tmp_path_factory.mktemp('drawing'), 'x')
  return page.render('Papers & <more>', [('command', '`python -m x`')], [
      page.Section('first', 'Figure 1 <i>', [('rows', '3 of 4')], _VERDICTS,
                   ['2 settings not run: get it from "there"'], '', _TABLE,
                   svg),
      page.Section('second', 'Figure 2', error='ValueError: <planted>',
                   figure=svg)])


def test_a_page_is_whole_and_its_ids_are_unique(text):
  reader = _read(text)
  assert len(reader.ids) > 20 and len(set(reader.ids)) == len(reader.ids)
  assert reader.tags['svg'] == 2 and reader.tags['section'] == 2


def test_references_stay_inside_and_find_their_target(text):
  reader = _read(text)
  assert reader.refs and all(ref.startswith('#') for ref in reader.refs)
  assert {ref[1:] for ref in reader.refs} <= set(reader.ids)
  assert not re.search(r'https?:|@import|<script|<link|<img|<iframe', text)


def test_figures_clip_by_their_own_paths(text):
  clips = re.findall(r'clip-path="url\(#(\w+?)-', text)
  assert set(clips) == {'first', 'second'}


def test_text_is_escaped(text):
  reader = _read(text)
  for shown in ('a < b', '2 & 3', '<script>', 'Papers & <more>',
                'Figure 1 <i>', 'ValueError: <planted>', 'get it from "there"',
                'Errors of tight <b>.'):
    assert shown in reader.text
  assert reader.tags['script'] == reader.tags['i'] == reader.tags['planted'] == 0


def test_verdicts_are_counted_and_coloured(text):
  for outcome in ('1 agrees', '1 differs', '0 not comparable', '1 not run'):
    assert f'>{outcome}</b>' in text
  assert text.count('<tr class="differs">') == 1
  assert text.count('<tr class="not-run">') == 1
  assert 'prefers-color-scheme: dark' in text


def test_what_failed_or_is_left_out_stands_at_the_top(text):
  top = text[:text.index('<h2>Contents')]
  assert 'get it from' in top and 'planted' in top and '<h2>Failed' in top


def test_tables_of_reports_are_tables():
  found = hypertext.markdown(_TABLE)
  reader = _read(found)
  assert reader.tags['tr'] == 3 and reader.tags['li'] == 2
  assert '<td class="number">0.5</td>' in found
  assert '<td>a|b</td>' in found and '<h4>More</h4>' in found
  assert found.startswith('<p>Errors of <code>tight</code> &lt;b&gt;.</p>')


def test_what_is_no_drawing_is_refused():
  with pytest.raises(ValueError, match='first: not an SVG'):
    hypertext.figure('<html></html>', 'first')


def test_two_sections_of_one_name_are_refused():
  with pytest.raises(ValueError, match='different names'):
    page.render('x', [], [page.Section('a', 'b'), page.Section('a', 'c')])
