"""These tests check ids, filters and shards of a sweep."""

import dataclasses

import pytest

from dpjax.runs import grouping
from experiments import engine
from experiments import registry
from experiments import selection


@dataclasses.dataclass(frozen=True)
class _Setting:
  a: object
  seed: int = 0


def _ids(settings):
  return [selection.setting_id('toy', setting) for setting in settings]


@pytest.mark.parametrize('value, text', [
    (.5, '0.5'), (8., '8'), (1e-5, '1e-05'), (float('inf'), 'inf'), (3, '3'),
    (True, 'true'), (None, 'none'), ('lip_dp_sgd', 'lip_dp_sgd'),
    ((64, 32), '64x32'), ((), 'none')])
def test_values_in_ids(value, text):
  assert selection.format_value(value) == text


@pytest.mark.parametrize('value', ['a b', 'a,b', 'a=b', 'a/b', '', [1], {}])
def test_values_that_would_break_an_id_are_refused(value):
  with pytest.raises(ValueError, match='a setting must hold'):
    selection.format_value(value)


def test_id_has_all_fields_in_order(toy):
  assert selection.setting_id('toy', toy.settings[3]) == (
      'toy/dataset=adult,method=dp_sgd,epsilon=8,seed=1')
  assert len(set(_ids(toy.settings))) == 16


@pytest.mark.parametrize('settings, batched, says', [
    ((), (), 'one or more instances'),
    ((_Setting(1), 'other'), (), 'one or more instances'),
    (('text',), (), 'one or more instances'),
    ((_Setting(1), _Setting(1.)), (), 'toy/a=1,seed=0 is there twice'),
    ((_Setting(1),), ('b',), 'BATCHED must be among a, seed; got b')])
def test_an_unusable_sweep_is_refused(settings, batched, says):
  with pytest.raises(ValueError, match=says):
    selection.check('toy', settings, batched)


def test_tags_are_predicates_or_tuples(toy):
  assert engine.select(toy, tag='first') == toy.settings[:3]
  assert engine.select(toy, tag='adult') == toy.settings[:8]
  assert engine.select(toy, smoke=True) == toy.smoke
  with pytest.raises(ValueError, match="no tag 'b'; there is adult, first"):
    engine.select(toy, tag='b')
  with pytest.raises(ValueError, match='no setting has the tag'):
    engine.select(toy, tag='none')


def test_filters(toy):
  def count(*only):
    return len(engine.select(toy, only=only))
  assert count() == 16
  assert count('dataset=adult') == 8
  assert count('dataset=adult,dropout') == 16
  assert count('dataset=adult', 'dataset=dropout') == 16
  assert count('dataset=adult', 'seed=1') == 4
  assert count('epsilon=0.50') == count('epsilon=.5') == 8
  kept = engine.select(toy, only=['epsilon=8.0', 'method=lip_dp_sgd'])
  assert {(setting.epsilon, setting.method) for setting in kept} == {
      (8., 'lip_dp_sgd')}


@pytest.mark.parametrize('only, says', [
    (['colour=red'], "no key 'colour' .* dataset, method, epsilon, seed"),
    (['dataset=iris'], 'no setting has dataset=iris; there is '
     'dataset=adult,dropout'),
    (['seed=0,5'], 'no setting has seed=5; there is seed=0,1'),
    (['dataset'], r"must be key=value\[,value\], got 'dataset'"),
    (['=1'], 'must be key=value'), (['seed=0,'], 'must be key=value')])
def test_a_wrong_filter_says_what_there_is(toy, only, says):
  with pytest.raises(ValueError, match=says):
    engine.select(toy, only=only)


def test_filters_that_exclude_each_other(toy):
  with pytest.raises(ValueError, match='no setting passes all of seed=0 '):
    selection.only(toy.settings[:1] + toy.settings[-1:],
                   ['seed=0', 'dataset=dropout'])


def test_groups_differ_in_batched_fields_only(toy):
  groups = grouping.groups(toy.settings, toy.batched)
  assert [len(group) for group in groups] == [4, 4, 4, 4]
  assert {setting for group in groups for setting in group} == set(
      toy.settings)
  for group in groups:
    assert len({(setting.dataset, setting.method) for setting in group}) == 1
  assert grouping.groups(toy.settings, ()) == [
      (setting,) for setting in toy.settings]


@pytest.mark.parametrize('count', [1, 2, 3, 4, 5, 16, 20])
def test_shards_are_disjoint_and_their_union_is_whole(toy, count):
  shards = [engine.select(toy, shard=f'{index}/{count}')
            for index in range(1, count + 1)]
  together = [setting for part in shards for setting in part]
  assert len(together) == 16
  assert set(together) == set(toy.settings)
  sizes = [len(part) for part in shards]
  # Groups of four are dealt whole as long as there are enough of them.
  assert max(sizes) - min(sizes) <= (4 if count <= 4 else 1)
  if count <= 4:
    assert all(size % 4 == 0 for size in sizes)


def test_shards_of_a_filtered_sweep(toy):
  only = ['dataset=adult']
  parts = [engine.select(toy, only=only, shard=f'{index}/2')
           for index in (1, 2)]
  assert not set(parts[0]) & set(parts[1])
  assert set(parts[0]) | set(parts[1]) == set(engine.select(toy, only=only))


@pytest.mark.parametrize('text', ['0/2', '3/2', '1', '1/0', 'a/b', '-1/2'])
def test_a_wrong_shard_is_refused(toy, text):
  with pytest.raises(ValueError, match='--shard must be i/n'):
    engine.select(toy, shard=text)


def test_registry_names_what_there_is(toy):
  assert toy.name == 'toy' and toy.batched == ('epsilon', 'seed')
  assert toy.artefact == 'Table 0 of no paper'
  with pytest.raises(ValueError, match="no experiment 'tot'; there is .*toy"):
    registry.load('tot')
