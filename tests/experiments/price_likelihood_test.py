"""These tests check the cost of private maximum likelihood on rows."""

import dataclasses

import pytest

from experiments import points
from experiments import registry
from experiments import verdicts


def _of(all_verdicts, start):
  verdict, = (v for v in all_verdicts if v.claim.startswith(start))
  return verdict.verdict


def _field(line, name):
  return float(line.id.split(f'{name}=')[1].split(',')[0])


@pytest.mark.parametrize('keep, metrics, factor, claims', [
    ('part=risk,method=statistics,num_examples=464,', ('risk',), lambda _: .3,
     ('risks lie',)),
    ('part=risk,method=descent,num_examples=464,', ('risk',), lambda _: 3.,
     ('risks lie',)),
    ('part=risk,method=minimax', ('off',), lambda _: 4., ('closed forms',)),
    ('part=records,method=descent,', ('privacy',), lambda line: _field(
        line, 'num_examples')**.15, ('privacy terms against records',)),
    ('part=budgets,method=output,', ('privacy',), lambda line: _field(
        line, 'rho')**.15, ('privacy terms against rho',)),
    ('part=dimensions,method=statistics', ('privacy',), lambda line: _field(
        line, 'dimension')**-.15, ('privacy terms against dim',)),
    ('part=golden,method=descent_printed', ('privacy',), lambda _: 1.5,
     ('privacy terms match', 'noisy means beat')),
    ('part=golden,method=descent_printed', ('privacy',), lambda _: 3.,
     ('Fact 4.2.4: utility',)),
    ('part=golden,method=descent_printed', ('share',), lambda _: 10.,
     ('Fact 4.2.4: rho',)),
    ('part=golden', ('trajectory',), lambda _: .2, ('publishing',)),
    ('radius=1,batch_size=100,', ('renyi_5',), lambda _: 50.,
     ('batches without',)),
    ('part=batches,method=replacement', ('privacy',), lambda _: 1.4,
     ('utility of mini',)),
    ('part=batches', ('noise_needed',), lambda _: .2, ('Poisson',))])
def test_claims_can_fail(keep, metrics, factor, claims, kept):
  """Claims agree on kept rows and differ on wrong ones."""
  report = registry.load('price_likelihood').report
  lines = kept('price_likelihood')
  changed = [dataclasses.replace(line, value=line.value * factor(line))
             if line.metric in metrics and keep in line.id else line
             for line in lines]
  assert changed != lines
  all_verdicts = report.verdict(changed)
  for claim in claims:
    assert _of(report.verdict(lines), claim) == verdicts.AGREES
    assert _of(all_verdicts, claim) == verdicts.DIFFERS


@pytest.mark.parametrize('keep, metric, value, claim', [
    ('part=audit', 'renyi_', .5, 'mini-batches'), ('', 'share', 1.,
                                                   'rho-zCDP requires noise'),
    ('part=printed', 'upper', 1., '(4.6)')])
def test_what_differs_could_have_agreed(keep, metric, value, claim, kept):
  report = registry.load('price_likelihood').report
  lines = [dataclasses.replace(line, value=value * (
      _field(line, 'dimension') if keep == 'part=printed' else 1))
           if line.metric.startswith(metric) and keep in line.id else line
           for line in kept('price_likelihood')]
  assert _of(report.verdict(kept('price_likelihood')), claim) == (
      verdicts.DIFFERS)
  assert _of(report.verdict(lines), claim) == verdicts.AGREES


@pytest.mark.slow
def test_end_to_end(smoke_rows):
  """Risks lie between their bounds, for methods that see the same data."""
  all_points = points.collect(smoke_rows(
      'price_likelihood', lambda s: s.part in ('risk', 'golden') and s.method in (
          'maximum', 'statistics', 'output_printed', 'descent_printed')))
  by = {p['method']: p for p in points.select(all_points, part='golden')}
  assert by['statistics']['privacy'] < by['output_printed']['privacy'] < (
      by['descent_printed']['privacy'])
  assert by['maximum']['total'] < by['descent_printed']['total']
  for point in points.select(all_points, part='risk'):
    assert point['lower'] < point['risk'] < 1.2 * point['upper']
