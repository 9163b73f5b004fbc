"""These tests compare the printed numbers with the text about them."""

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
  """No cell of Fix-Lip-DP-SGD is in the text, though one was the best (E27)."""
  assert all(line.fix_lip_dp_sgd is None for line in papers.TABLE_5_4)
  assert [line.dataset for line in papers.TABLE_5_4
          if line.best is None] == ['german_credit']


def test_delta_is_one_over_n():
  assert round(papers.TABLE_5_4[0].delta, 7) == 2.05e-5


def test_place():
  place = papers.TABLE_5_4_PLACE
  assert (place.source, place.lines, place.item) == (
      '003', (1491, 1501), 'Table 5.4')


def test_search_ranges():
  """Table 5.2 has seven search ranges in this order (EXP-T5.2)."""
  assert [line.name for line in papers.TABLE_5_2] == [
      'noise_multiplier', 'weight_norm', 'clip_norm', 'batch_size',
      'learning_rate', 'num_groups', 'norm_alpha']
  assert all(0 < line.low < line.high for line in papers.TABLE_5_2)
  assert round(sum(line.high for line in papers.TABLE_5_2), 3) == 580.01


def test_parameters_of_the_perceptrons():
  """140 parameters fit one perceptron and 2120 fit none (EXP-T5.3)."""
  shapes = dict(adult=(14, 2), android_permissions=(87, 2),
                breast_cancer=(32, 2), default_credit=(24, 2),
                dropout=(36, 3), german_credit=(20, 2), nursery=(8, 5))
  assert {line.dataset: line.num_features for line in papers.TABLE_5_4} == {
      name: features for name, (features, _) in shapes.items()}

  def fits(count):
    return {(name, width) for name, (features, classes) in shapes.items()
            for width in range(1, 1000)
            if (features + 1) * width + (width + 1) * classes == count}

  least, most = papers.MLP_PARAMETERS
  assert fits(least) == {('german_credit', 6)}
  assert fits(most) == set()


def test_sparse_networks():
  """Sparser networks have fewer parameters in Table 1.1 (MIA-09)."""
  percents = list(papers.TABLE_1_1.values())
  assert list(papers.TABLE_1_1) == sorted(papers.TABLE_1_1)
  assert percents == sorted(percents, reverse=True)
  assert round(sum(percents), 3) == 111
