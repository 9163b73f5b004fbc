"""These tests check that pages are whole, self-contained and escaped."""

import collections
from html import parser
import re

import pytest

from dpjax.report import plots
from experiments import hypertext
from experiments import page
from experiments import verdicts

_VOID = {'meta', 'br', 'hr', 'img', 'link', 'input'}


class _Reader(parser.HTMLParser):
  """This parser notes tags, ids and text and checks closing tags."""

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
  """Returns a page of two experiments with one figure; one failed."""
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
  html = hypertext.markdown(_TABLE)
  reader = _read(html)
  assert reader.tags['tr'] == 3 and reader.tags['li'] == 2
  assert '<td class="number">0.5</td>' in html
  assert '<td>a|b</td>' in html and '<h4>More</h4>' in html
  assert html.startswith('<p>Errors of <code>tight</code> &lt;b&gt;.</p>')


def test_what_is_no_drawing_is_refused():
  with pytest.raises(ValueError, match='first: not an SVG'):
    hypertext.figure('<html></html>', 'first')


def test_two_sections_of_one_name_are_refused():
  with pytest.raises(ValueError, match='different names'):
    page.render('x', [], [page.Section('a', 'b'), page.Section('a', 'c')])


@pytest.mark.every(1)
@pytest.mark.parametrize('text, html', [
    ('one\ntwo `a < b`\n\nthree', '<p>one two <code>a &lt; b</code></p>\n'
     '<p>three</p>\n'),
    ('## Title `x`\nbelow\nand on\n', '<h4>Title <code>x</code></h4>\n'
     '<p>below and on</p>\n'),
    ('# Title\nbelow', '<h4>Title</h4>\n<p>below</p>\n'),
    ('# Title #1', '<h4>Title #1</h4>\n'),
    ('- one\n- two - three\n \n- four\nfive', '<ul><li>one</li>'
     '<li>two - three</li></ul>\n<p>- four five</p>\n'),
    ('Before\n| a | b c |\n|:-- | --: |\n| -1.5% | 2x |\n',
     '<p>Before</p>\n<div class="wide"><table>\n<thead><tr><th>a</th>'
     '<th>b c</th></tr></thead>\n<tbody>\n<tr><td class="number">-1.5%</td>'
     '<td>2x</td></tr>\n</tbody></table></div>\n'),
    ('| no | table |\n| a | b |', '<p>| no | table | | a | b |</p>\n'),
    ('', '')])
def test_markdown_block_by_block(text, html):
  assert hypertext.markdown(text) == html


def test_lines_of_a_table_have_classes():
  assert hypertext.table(['`h`'], [['1'], ['&']], ['', 'a"b']) == (
      '<div class="wide"><table>\n<thead><tr><th><code>h</code></th></tr>'
      '</thead>\n<tbody>\n<tr><td class="number">1</td></tr>\n'
      '<tr class="a&quot;b"><td>&amp;</td></tr>\n</tbody></table></div>\n')
  with pytest.raises(ValueError):
    hypertext.table(['h'], [['1'], ['2']], ['one'])


def test_a_drawing_becomes_part_of_a_page():
  svg = ('<?xml version="1.0"?>\n<svg width="1" viewBox="0 0 300.6 -2" '
         'xmlns="http://x">\n<metadata>\nwho</metadata><style a="b">*{}</style>'
         '<!-- note --><g id="a"><use xlink:href="#a"/>'
         '<path clip-path="url(#b)" valid="c"/></g>\n</svg>\n')
  assert hypertext.figure(svg, 'x&y') == (
      '<svg viewBox="0 0 300.6 -2" role="img" aria-label="figure of x&amp;y" '
      'style="width:401px">\n<g id="x&amp;y-a"><use href="#x&amp;y-a"/>'
      '<path clip-path="url(#x&amp;y-b)" valid="c"/></g>\n</svg>\n')


def test_a_page_from_its_title_to_its_last_section():
  """A page has exactly this markup, from its title to its last section."""
  verdict = verdicts.Verdict('c', '1', '2', verdicts.NOT_COMPARABLE, 'why')
  whole = page.render('T `t`', [('what', '`is`')], [
      page.Section('a', 'Title `a`', [('rows', '3')], [verdict], ['left'],
                   table='below'),
      page.Section('b', 'Title b', notes=['also'], error='why')])
  head, style = whole.split('<style>')
  assert head == (
      '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
      '<meta name="viewport" content="width=device-width">\n'
      '<title>T `t`</title>\n')
  cells = ''.join(f'<th>{name}</th>' for name in verdicts.HEADERS)
  assert style.split('</style>\n')[1] == (
      '</head>\n<body>\n<h1>T <code>t</code></h1>\n<p class="tally">'
      '<b class="agrees">0 agrees</b><b class="differs">0 differs</b>'
      '<b class="not-comparable">1 not comparable</b>'
      '<b class="not-run">0 not run</b></p>\n'
      '<dl>\n<dt>what</dt><dd><code>is</code></dd>\n</dl>\n'
      '<h2>Failed, not run, or stood in for</h2>\n<ul>\n'
      '<li><a href="#a">a</a>: left</li>\n'
      '<li class=error><a href="#b">b</a>: why</li>\n'
      '<li><a href="#b">b</a>: also</li>\n</ul>\n'
      '<h2>Contents</h2>\n<div class="wide"><table>\n<thead><tr>'
      '<th>experiment</th><th>artefact</th><th>verdicts</th></tr></thead>\n'
      '<tbody>\n<tr><td><a href="#a">a</a></td><td>Title <code>a</code></td>'
      '<td>1 not comparable</td></tr>\n<tr><td><a href="#b">b</a></td>'
      '<td>Title b</td><td><span class="error">failed</span></td></tr>\n'
      '</tbody></table></div>\n'
      '<section id="a">\n<h2>a</h2>\n<p>Title <code>a</code></p>\n'
      '<dl>\n<dt>rows</dt><dd>3</dd>\n</dl>\n<p>left</p>\n'
      f'<div class="wide"><table>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n'
      '<tr class="not-comparable"><td>c</td><td class="number">1</td>'
      '<td class="number">2</td><td>not comparable</td><td>why</td></tr>\n'
      '</tbody></table></div>\n<details><summary>table</summary>\n'
      '<p>below</p>\n</details>\n</section>\n'
      '<section id="b">\n<h2>b</h2>\n<p>Title b</p>\n<p class="error">why</p>\n'
      '<p>also</p>\n</section>\n</body>\n</html>\n')
  empty = page.render('T', [], [page.Section('c', 'C')])
  assert '<dl>' not in empty and 'stood in for' not in empty
  assert '<td>C</td><td>-</td>' in empty
