"""These tests check experiments.points and experiments.simulation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.report import plots
from experiments import points
from experiments import rows
from experiments import selection
from experiments import simulation
from experiments import verdicts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  kind: str
  size: int
  epsilon: float = float('inf')
  seed = 0
  method = dataset = 'none'


@pytest.fixture(name='collected')
def _collected():
  lines = [row for size in (100, 10, 1000) for kind in 'ab' for row in
           selection.named('toy', Setting(kind=kind, size=size), rows.exact(
               Setting(kind=kind, size=size),
               {'risk': 3 / size**2, 'se': .1, 'n': size}))]
  return points.collect(lines)


def test_points_are_sorted_settings_with_their_metrics(collected):
  assert [(p['kind'], p['size']) for p in collected] == [
      (kind, size) for kind in 'ab' for size in (10, 100, 1000)]
  assert collected[0].values == {'risk': .03, 'se': .1, 'n': 10}
  assert collected[0]['epsilon'] == float('inf')
  with pytest.raises(KeyError):
    collected[0]['other']


def test_selecting_and_distinct(collected):
  assert [p['size']
          for p in points.select(collected, kind='b', size=(10., 100.))
          ] == [10, 100]
  assert points.distinct(collected, 'kind') == [('a',), ('b',)]
  assert points.slope(points.select(collected, kind='a'), 'size', 'risk'
                      ) == pytest.approx(-2)


def test_table_and_curve(collected):
  text = points.table(collected[:1], ('kind', 'size', 'epsilon'),
                      ('risk', 'none'))
  assert text.splitlines()[2].split('|')[1:-1] == [
      ' a    ', ' 10   ', ' inf     ', ' 0.03 ', ' -    ']
  pytest.importorskip('matplotlib')
  ax = plots.new()[1][0, 0]
  points.curve(ax, collected[:3], 'size', 'risk', 'a', series=0)
  points.curve(ax, collected[:3], 'size', 'none', 'missing', series=1)
  line, = ax.get_lines()
  assert list(line.get_xdata()) == [10, 100, 1000]
  points.finish(ax, 'x', 'y')
  assert ax.get_xscale() == 'log' and ax.get_legend() is not None


def test_judged(collected):
  yes = points.judged('c', 'p', collected, lambda p: (f'{len(p)}', True, 'r'))
  assert yes == ('c', 'p', '6', verdicts.AGREES, 'r')
  assert points.judged('c', 'p', collected, lambda p: ('', False, 'r')
                       ).verdict == verdicts.DIFFERS
  assert points.judged('c', 'p', [], None).verdict == verdicts.NOT_RUN


@pytest.mark.every(2)
def test_means_over_repetitions():
  setting = Setting(kind='a', size=3)
  key = simulation.key_of(setting)
  mean, error = simulation.means(
      key, lambda coins, data: jnp.stack([jnp.mean(data), jax.random.normal(
          coins)]), lambda key: jax.random.normal(key, (3,)),
      num_repetitions=4000, size=3)
  np.testing.assert_allclose(error, np.array([3**-.5, 1]) / 4000**.5, rtol=.1)
  assert np.all(np.abs(mean) < 5 * error)
  other = simulation.key_of(dataclasses.replace(setting, size=4))
  assert (jax.random.key_data(key) != jax.random.key_data(other)).any()
  assert (jax.random.key_data(key) == jax.random.key_data(
      simulation.key_of(dataclasses.replace(setting)))).all()


def test_released_rows_say_what_a_release_costs():
  row, = rows.released(Setting(kind='a', size=5), {'risk': 1}, n=5, epsilon=.3)
  assert (row.n, row.epsilon, row.epsilon_requested, row.delta) == (
      5, .3, .3, 0)
  assert row.adjacency == 'replace_one' and row.epsilon_valid
