"""Tests that equal rows give figures of equal bytes that name the rows."""

import sys

import numpy as np
import pytest

from dpjax.report import plots
from experiments import figures

DIGEST = 'ab' * 32


def _figure(shift=0.):
  figure, axes = plots.new()
  ax = axes[0, 0]
  plots.error_bars(ax, [.5, 2., 8.], [.7 + shift, .8, .9], [.01, .02, .01],
                   'ours')
  plots.error_bars(ax, [.5, 2., 8.], [.6, .7, .8], [.01, float('nan'), .01],
                   'theirs')
  plots.epsilon_axis(ax, [8., .5, float('inf'), 2., .5])
  ax.legend()
  return figure


@pytest.mark.every(2)
def test_svg_is_deterministic(tmp_path):
  plots.save(_figure(), tmp_path / 'a.svg', digest=DIGEST)
  plots.save(_figure(), tmp_path / 'b.svg', digest=DIGEST)
  plots.save(_figure(.01), tmp_path / 'c.svg', digest=DIGEST)
  first = (tmp_path / 'a.svg').read_bytes()
  assert first == (tmp_path / 'b.svg').read_bytes()
  assert first != (tmp_path / 'c.svg').read_bytes()
  assert b'<dc:date>' not in first


def test_svg_says_which_rows_it_shows(tmp_path):
  plots.save(_figure(), tmp_path / 'a.svg', digest=DIGEST)
  assert figures.read_digest(tmp_path / 'a.svg') == DIGEST
  (tmp_path / 'b.svg').write_text('<svg/>')
  assert figures.read_digest(tmp_path / 'b.svg') is None


@pytest.mark.every(2)
def test_png_is_written_only_when_asked_for(tmp_path):
  plots.save(_figure(), tmp_path / 'a.svg', digest=DIGEST)
  assert not (tmp_path / 'a.png').exists()
  plots.save(_figure(), tmp_path / 'a.svg', digest=DIGEST, png=True)
  png = (tmp_path / 'a.png').read_bytes()
  assert png.startswith(b'\x89PNG')
  # The figure has 4 x 3 inches with 200 dots each.
  assert (png[16:20], png[20:24]) == ((800).to_bytes(4), (600).to_bytes(4))


def test_a_figure_is_an_svg(tmp_path):
  with pytest.raises(ValueError, match='must be saved as .svg'):
    plots.save(_figure(), tmp_path / 'a.pdf', digest=DIGEST)


def test_series_differ_in_colour_and_marker():
  figure = _figure()
  lines = [bars[0] for bars in figure.axes[0].containers]
  assert [line.get_color() for line in lines] == list(plots.COLOURS[:2])
  assert [line.get_marker() for line in lines] == list(plots.MARKERS[:2])
  plots.error_bars(figure.axes[0], [1.], [1.], [1.], 'again', series=0)
  assert figure.axes[0].containers[-1][0].get_color() == plots.COLOURS[0]
  assert len(plots.COLOURS) == len(plots.MARKERS) == len(set(plots.MARKERS))


def test_means_stand_at_their_places_with_an_error_to_each_side():
  ax = plots.new()[1][0, 0]
  plots.error_bars(ax, [1., 2.], [5., 9.], [.5, .25], 'ours')
  line, _, (bars,) = ax.containers[0]
  np.testing.assert_array_equal(line.get_xydata(), [[1, 5], [2, 9]])
  np.testing.assert_array_equal(bars.get_segments(), [
      [[1, 4.5], [1, 5.5]], [[2, 8.75], [2, 9.25]]])
  assert line.get_linestyle() == '-'


def test_epsilon_axis_is_logarithmic_with_its_values():
  ax = _figure().axes[0]
  assert ax.get_xscale() == 'log'
  np.testing.assert_array_equal(ax.get_xticks(), [.5, 2., 8.])
  assert [text.get_text() for text in ax.get_xticklabels()] == [
      '0.5', '2', '8']


def test_roc_axes_are_logarithmic_with_the_diagonal():
  ax = plots.new()[1][0, 0]
  figures.roc_axes(ax, least=1e-3)
  assert ax.get_xscale() == ax.get_yscale() == 'log'
  assert ax.get_xlim() == ax.get_ylim() == (1e-3, 1.)
  np.testing.assert_array_equal(ax.lines[0].get_xydata(),
                                [[1e-3, 1e-3], [1., 1.]])


def test_roc_shows_what_is_attained_and_nothing_before():
  ax = plots.new()[1][0, 0]
  figures.roc_axes(ax, least=1e-3)
  fpr, tpr = [0., 0., .01, .01, .2, 1.], [0., 0., 0., .3, .5, 1.]
  figures.roc(ax, fpr, tpr, 'attack', series=1)
  grid, drawn = ax.lines[1].get_xdata(), ax.lines[1].get_ydata()
  for rate, value in zip(grid, drawn, strict=True):
    best = max(t for f, t in zip(fpr, tpr, strict=True) if f <= rate)
    assert value == best if best else np.isnan(value)
  assert grid[0] == pytest.approx(1e-3) and grid[-1] == 1 and drawn[-1] == 1
  assert ax.lines[1].get_drawstyle() == 'steps-post'
  assert ax.lines[1].get_color() == plots.COLOURS[1]


def test_roc_ceiling_is_drawn_as_it_is():
  ax = plots.new()[1][0, 0]
  figures.roc_axes(ax, least=1e-2)
  figures.roc_ceiling(ax, lambda rate: np.minimum(1., 2 * rate + .1), 'DP',
                    series=2)
  grid, drawn = ax.lines[1].get_xdata(), ax.lines[1].get_ydata()
  np.testing.assert_allclose(drawn, np.minimum(1., 2 * grid + .1))
  assert ax.lines[1].get_linestyle() == '--'
  assert ax.lines[1].get_label() == 'DP'


def test_grid_of_axes():
  figure, axes = plots.new(2, 3, width=2., height=1.)
  assert axes.shape == (2, 3)
  assert tuple(figure.get_size_inches()) == (6., 2.)


def test_the_style_of_axes_and_of_what_is_drawn():
  figure = _figure()
  assert tuple(figure.get_size_inches()) == (4., 3.)
  ax = figure.axes[0]
  assert [side for side, spine in ax.spines.items() if spine.get_visible()] == [
      'left', 'bottom']
  grid = ax.xaxis.get_gridlines()[0]
  assert grid.get_visible() and grid.get_alpha() == 0.3
  assert not len(ax.get_xticks(minor=True)) and ax.get_xlabel() == 'epsilon'
  assert ax.xaxis.label.get_fontsize() == 9.
  line, caps, _ = ax.containers[0]
  assert (line.get_linewidth(), line.get_markersize()) == (1.2, 4.)
  assert [cap.get_markersize() for cap in caps] == [4., 4.]
  assert [text.get_text() for text in ax.get_legend().get_texts()] == [
      'ours', 'theirs']


def test_curves_have_200_points_and_the_style():
  ax = plots.new()[1][0, 0]
  figures.roc_axes(ax, least=1e-3)
  figures.roc(ax, [0., 1.], [0., 1.], 'attack', series=8)
  figures.roc_ceiling(ax, np.sqrt, 'DP', series=9)
  diagonal, attack, ceiling = ax.lines
  for line, series in ((attack, 8), (ceiling, 9)):
    np.testing.assert_allclose(line.get_xdata(), np.geomspace(1e-3, 1, 200))
    assert line.get_color() == plots.COLOURS[series - 7]
  assert [line.get_linewidth() for line in ax.lines] == [0.8, 1.2, 1.]
  assert diagonal.get_color() == '.6' and diagonal.get_zorder() == 1
  assert (ax.get_xlabel(), ax.get_ylabel()) == (
      'false positive rate', 'true positive rate')


def test_the_style_does_not_leak():
  import matplotlib
  before = matplotlib.rcParams['svg.hashsalt']
  _figure()
  assert matplotlib.rcParams['svg.hashsalt'] == before


def test_without_matplotlib_one_line_says_what_to_do(monkeypatch):
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  with pytest.raises(ImportError) as caught:
    plots.new()
  assert 'pip install dpjax[plots]' in str(caught.value)
  assert '\n' not in str(caught.value)
