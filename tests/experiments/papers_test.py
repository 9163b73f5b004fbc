"""The printed numbers, against what the text says of them in words."""

from experiments import papers


def test_lip_dp_sgd_is_printed_above_dp_sgd_everywhere():
  assert len(papers.TABLE_5_4) == 7
  for line in papers.TABLE_5_4:
    assert .5 < line.dp_sgd < line.lip_dp_sgd < 1


def test_checksums_of_the_columns():
  def total(name):
    return sum(getattr(line, name) for line in papers.TABLE_5_4)
  assert round(total('epsilon'), 3) == 11.411
  assert round(total('dp_sgd'), 3) == 5.774
  assert round(total('lip_dp_sgd'), 3) == 5.9
  assert total('num_examples') == 127128
  assert total('num_features') == 221


def test_lost_cells_are_none():
  assert all(line.fix_lip_dp_sgd is None for line in papers.TABLE_5_4)
  assert [line.dataset for line in papers.TABLE_5_4
          if line.best is None] == ['german_credit']


def test_delta_is_one_over_n():
  assert round(papers.TABLE_5_4[0].delta, 7) == 2.05e-5


def test_place():
  place = papers.TABLE_5_4_PLACE
  assert (place.source, place.lines, place.item) == (
      '003', (1491, 1501), 'Table 5.4')
