"""Tests that equal rows give equal tables, readable as text."""

import math

import pytest

from dpjax.report import tables
from experiments import summary
from experiments import verdicts


def test_markdown_is_aligned():
  assert tables.markdown(('name', 'n'), [('a', 1), ('long name', 22)]) == (
      '| name      | n   |\n'
      '| --------- | --- |\n'
      '| a         | 1   |\n'
      '| long name | 22  |\n')


def test_markdown_without_padding():
  assert tables.markdown(('a', 'long name'), [(1, 'text')], aligned=False) == (
      '| a   | long name |\n| --- | --- |\n| 1   | text |\n')


def test_markdown_cells_cannot_break_the_table():
  assert '| a\\|b c |' in tables.markdown(('x',), [('a|b\nc',)])


def test_a_line_with_missing_cells_is_refused():
  for make in (tables.markdown, tables.latex):
    with pytest.raises(ValueError, match='2 headers but 1 cells'):
      make(('a', 'b'), [('only',)])


@pytest.mark.parametrize('value, text', [
    (.12345, '0.123'), (None, '-'), (math.nan, '-'), (math.inf, 'inf'),
    (-2, '-2.000')])
def test_numbers(value, text):
  assert tables.number(value) == text


def test_cells_show_the_standard_error():
  assert summary.cell(summary.Summary(.83149, .00251, .8, 10)) == (
      '0.831 +- 0.003')
  assert summary.cell(summary.Summary(.5, math.nan, .5, 1)) == '0.500'
  assert summary.cell(summary.Summary(.5, .1, .5, 9), digits=1) == '0.5 +- 0.1'
  assert summary.cell(None) == '-'


def test_latex_escapes():
  assert tables.latex(('a_b', 'c'), [('5 %', r'x\y')]) == (
      '\\begin{tabular}{ll}\n\\toprule\na\\_b & c \\\\\n\\midrule\n'
      '5 \\% & x\\textbackslash{}y \\\\\n\\bottomrule\n\\end{tabular}\n')


def test_a_block_is_replaced_and_the_rest_kept():
  text = 'top\n<!-- begin: x -->\nold\n<!-- end: x -->\nbottom\n'
  once = tables.replace_block(text, 'x', 'new\n')
  assert once == 'top\n<!-- begin: x -->\nnew\n<!-- end: x -->\nbottom\n'
  assert tables.replace_block(once, 'x', 'new\n') == once


@pytest.mark.parametrize('text', [
    'nothing', '<!-- begin: x -->', '<!-- end: x --><!-- begin: x -->',
    '<!-- begin: x --><!-- end: x --><!-- end: x -->',
    '<!-- begin: y --><!-- end: y -->'])
def test_wrong_markers_are_refused(text):
  with pytest.raises(ValueError, match='one <!-- begin: x --> and then'):
    tables.replace_block(text, 'x', 'new')


def test_verdicts_are_checked_and_counted():
  rows = verdicts.check([
      ('c1', '.83', '.82', 'agrees', 'within .01'),
      ('c2', '.9', '-', 'not run', 'no rows'),
      ('c3', '.9', '.8', 'agrees', 'within .2')])
  assert rows[0].reason == 'within .01'
  assert verdicts.tally(rows) == '2 agrees, 1 not run'
  assert verdicts.tally([]) == ''
  assert '| c2    | .9      | -    | not run | no rows' in verdicts.markdown(
      rows)


@pytest.mark.parametrize('verdict, says', [
    (('c', '1', '1', 'fine', 'r'), 'must be one of agrees, differs'),
    (('c', '1', '2', 'differs', ''), "verdict on 'c' must have a reason")])
def test_a_verdict_must_be_known_and_have_a_reason(verdict, says):
  with pytest.raises(ValueError, match=says):
    verdicts.check([verdict])
