"""Tests that figures show what was released, and nothing else."""

import matplotlib.figure
import numpy as np
import pytest

from dpjax.release import pictures


@pytest.fixture
def ax():
  """Returns axes of a figure that is not shown."""
  return matplotlib.figure.Figure().subplots()


def _lines(ax):
  return [np.stack(line.get_data(), -1).tolist() for line in ax.lines]


def test_groups_are_drawn_at_what_is_predicted(ax):
  groups = [{'predicted': .2, 'observed': .3,
             'interval': {'lower': .1, 'upper': .5}},
            {'predicted': .7, 'observed': .6,
             'interval': {'lower': .4, 'upper': .9}}]
  pictures._calibration(ax, {'groups': groups, 'value': 1.0, 'p_value': .5})
  assert _lines(ax) == [
      [[.2, .1], [.2, .5]], [[.2, .3]], [[.7, .4], [.7, .9]], [[.7, .6]],
      [[0, 0], [.7, .7]]]


def test_the_outline_of_boxes_is_the_widest_at_each_rate():
  fpr = {'lower': [0, .2, .6], 'upper': [.3, .6, 1]}
  tpr = {'lower': [0, .4, .7], 'upper': [.5, .8, 1]}
  assert pictures._outline(fpr, tpr) == (
      [0, .2, .3, .6, 1], [0, 0, 0, .4, .7], [.5, .8, .8, 1, 1])


def test_densities_are_drawn_between_their_ends(ax):
  pictures._density(ax, {
      'thresholds': [0., 1., 2.], 'value': [.3, .7],
      'histogram': {'heights': [.2, .4, .6, .8]}, 'parameters': {'column': 'x'},
      'population_interval': {'lower': [.1, .5], 'upper': [.4, .9],
                              'level': .9}})
  bars = [(bar.get_x(), bar.get_width(), bar.get_height())
          for bar in ax.patches]
  assert bars == [(0, .5, .2), (.5, .5, .4), (1, .5, .6), (1.5, .5, .8)]
  assert _lines(ax)[0] == [[.5, .3], [1.5, .7]]


@pytest.mark.every(3)
@pytest.mark.parametrize('views', [('roc',), ('roc', 'hosmer_lemeshow')])
def test_a_figure_has_all_views_of_a_classifier(monkeypatch, views, tmp_path):
  drawn, labels = [], []
  for view, name in (('roc', '_roc'), ('hosmer_lemeshow', '_calibration'),
                     ('ecdf', '_ecdf')):
    monkeypatch.setattr(pictures, name, lambda ax, shown, view=view: (
        drawn.append((view, shown)), labels.append(ax)))
  answer = {'statistic': 'classifier', **{view: {'of': view} for view in views},
            'parameters': {'column': 'x'}, 'guarantee': {'epsilon': 1}}
  pictures.draw(answer, str(tmp_path / 'a.svg'))
  assert drawn == [(view, {'of': view}) for view in views]
  assert len(set(labels)) == len(views)
  answer = {'statistic': 'ecdf', 'parameters': {'column': 'x'},
            'guarantee': {'epsilon': 1}}
  pictures.draw(answer, str(tmp_path / 'b.svg'))
  assert drawn[-1] == ('ecdf', answer)


def _outlines(ax):
  """Returns the corners of all areas that are filled between two curves."""
  return [{tuple(corner) for corner in path.vertices.tolist()}
          for each in ax.collections for path in each.get_paths()]


def test_bands_are_drawn_at_their_ends(ax):
  """Bands of step curves, densities and both rates are filled to their ends."""
  band = {'lower': [.1, .2, .5], 'upper': [.3, .4, .9], 'level': .9}
  answer = {'thresholds': [1., 2., 3.], 'value': [.2, .3, .7], 'interval': band,
            'parameters': {'column': 'x', 'grid': 'uniform'}}
  pictures._ecdf(ax, answer)
  corners = [*zip((1., 2., 3.), (*band['lower'], *band['upper']))]
  assert {*corners} <= _outlines(ax)[0]
  # A step holds until the next threshold.
  assert {(2., .1), (2., .3), (3., .2), (3., .4)} <= _outlines(ax)[0]
  assert ax.lines[0].get_drawstyle() == 'steps-post'
  assert _lines(ax)[0] == [[1, .2], [2, .3], [3, .7]]
  ax.clear()
  pictures._density(ax, {
      **answer, 'thresholds': [0., 1., 2., 3.], 'histogram': {'heights': [.2]},
      'population_interval': band})
  outline, = _outlines(ax)
  assert outline == {*zip([.5, 1.5, 2.5] * 2, [*band['lower'],
                                               *band['upper']])}
  ax.clear()
  fpr, tpr = ({'lower': [0, .2], 'upper': [.4, 1]},
              {'lower': [0, .5], 'upper': [.7, 1]})
  pictures._roc(ax, {'value': {'fpr': [0, 1], 'tpr': [0, 1]},
                     'interval': {'fpr': fpr, 'tpr': tpr, 'level': .9}})
  outline, = _outlines(ax)
  places, low, high = pictures._outline(fpr, tpr)
  assert outline == {*zip(places * 2, low + high)}
  assert _lines(ax) == [[[0, 0], [1, 1]]] * 2


@pytest.mark.parametrize('grid, scale', [('uniform', 'linear'),
                                         ('geometric', 'log')])
def test_axes_say_what_they_are(ax, grid, scale):
  """Axes have the right labels, and names with formula signs are escaped."""
  band = {'lower': [.1, .2], 'upper': [.3, .4], 'level': .95}
  rates = {'lower': [0, .2], 'upper': [.4, 1]}
  group = {'predicted': .2, 'observed': .3, 'interval': band}
  answer = {'thresholds': [1., 2., 3.], 'value': [.2, .3], 'interval': band,
            'population_interval': band, 'histogram': {'heights': [.2]},
            'parameters': {'column': 'a$b', 'grid': grid}}
  file, people = 'file, 0.95 at once', 'population, 0.95 at once'
  for draw, shown, labels, legend in (
      (pictures._ecdf, {**answer, 'thresholds': [1., 2.]},
       ('threshold', 'share at or below'), {file}),
      (pictures._density, answer, (r'a\$b', 'density'),
       {'noisy counts', people, 'density'}),
      (pictures._roc, {'value': {'fpr': [0, 1], 'tpr': [0, 1]},
                       'interval': {'fpr': rates, 'tpr': rates, 'level': .95}},
       ('false positive rate', 'true positive rate'), {file}),
      (pictures._calibration, {'groups': [group], 'value': 1.23456,
                               'p_value': .0512}, ('predicted', 'observed'),
       None)):
    ax.clear()
    draw(ax, shown)
    assert (ax.get_xlabel(), ax.get_ylabel()) == labels
    texts = ax.get_legend() and {text.get_text() for text
                                 in ax.get_legend().get_texts()}
    assert texts == legend
    if draw is pictures._ecdf:
      assert ax.get_xscale() == scale
  assert ax.get_title() == 'H 1.23, p 0.051'


def test_what_cannot_be_drawn_is_refused(monkeypatch):
  """What cannot be drawn is refused before any budget is spent."""
  for name in pictures.DRAWN:
    pictures.check(name, 'a.svg')
  with pytest.raises(ValueError, match='statistic of --plot must be one of'):
    pictures.check('mean', 'a.svg')
  with pytest.raises(ValueError, match='--plot must end in .svg, got a.png'):
    pictures.check('ecdf', 'a.png')
  monkeypatch.setattr(pictures.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ImportError, match='figures need matplotlib'):
    pictures.check('ecdf', 'a.svg')
