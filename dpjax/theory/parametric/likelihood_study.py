"""Lower bounds and risks for product Bernoulli distributions in log-odds.

Lower bounds are Bayes risks of priors in the box; each is the largest over a
few priors:

* scores (`minimax.scores`), for the cosine prior on [c - R, c + R]^d; near a
  corner of the box a record has the least information. Privacy adds 2 d^2 /
  (n^2 rho) in the middle, where noisy means have 8 d^2 / (n^2 rho).
* coordinates: d times the bound of one coordinate given the others, by
  differences of its two values as in `scores.proportion`. With E m s = p q D
  for the score s = T - p, the noise is at least a^2 (1 - v) / (2 v n^2 E p q
  max(p, q)): 8 d / (n^2 rho) in the middle, so that noisy means of one
  coordinate cannot be beaten.
* cubes: d a^2 share(t), where t is the total variation of a coordinate between
  c - a and c + a. Under a uniform prior on the corners of a cube each
  coordinate is a problem of two points whatever the others are
  (`minimax.two_points`). On the whole box it is the risk of the best constant
  as the budget goes to 0.
* least favourable prior: holds for any estimate, private or not.

`printed` is the bound (4.6) of Lalanne (2023). Noisy means have 8 d^2 / (n^2
rho).
"""

from collections.abc import Iterator
import math

import numpy as np
from scipy import special
from scipy import stats

from dpjax.privacy import notions
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import gaussian_noise
from dpjax.theory.parametric import least_favourable
from dpjax.theory.parametric import likelihood
from dpjax.theory.parametric import likelihood_risks
from dpjax.theory.parametric import normal_bounds
from dpjax.theory.parametric import sgml
from dpjax.theory.parametric import study
from dpjax.theory.parametric.exponential_families import Model

_CENTRES, _RADII = 9, 12
_NODES = 200
# Expected number of differing records above which `cubes` proves nothing more.
_FARTHEST = 2e6


def _boxes(radius: float) -> Iterator[tuple[float, float]]:
  """Yields (centre, radius) of intervals in [-b, b], centre >= 0 by symmetry.
  """
  for centre in radius * np.linspace(0, 0.95, _CENTRES):
    for fraction in np.geomspace(1e-3, 1, _RADII):
      yield float(centre), float(fraction * (radius - centre))


def _informations(model: Model, centre: float, radius: float
                  ) -> tuple[float, float, float]:
  """Returns prior means of p q, of its maximum over coordinates, p q max(p, q).
  """
  u = (np.arange(_NODES) + 0.5) / _NODES * 2 - 1
  prob = special.expit(centre + radius * u)
  values = prob * (1 - prob)
  # The largest of d independent values: steps of the d-th power of their
  # distribution function.
  order = np.argsort(values)
  weights = (2 * np.cos(math.pi * u / 2)**2 / _NODES)[order]
  below = np.minimum(np.cumsum(weights), 1.0)
  steps = np.diff(below**model.dimension, prepend=0.0)
  rare = values * np.maximum(prob, 1 - prob)
  return (float(weights @ values[order]), float(steps @ values[order]),
          float(weights @ rare[order]))


def _score_bounds(model: Model, num_examples: int,
                  guarantee: Guarantee) -> list[Bound]:
  """Returns the bounds 'scores' and 'coordinates'."""
  joint, single, d = 0.0, 0.0, model.dimension
  v = disclosure.discrimination(guarantee)
  for centre, radius in _boxes(model.radius):
    mean, largest, rare = _informations(model, centre, radius)
    prior = scores.cosine_information(dimension=1, radius=radius)
    joint = max(joint, scores.bound(
        dimension=d, num_examples=num_examples, guarantee=guarantee,
        information=largest, information_trace=d * mean,
        prior_information=d * prior))
    noise = num_examples**2 * 2 * v / (1 - v) * rare if v < 1 else math.inf
    single = max(single, d * scores.joined(1, num_examples * mean, noise,
                                           prior))
  return [Bound(joint, 'scores'), Bound(single, 'coordinates')]


def _cube_bound(model: Model, num_examples: int,
                guarantee: Guarantee) -> Bound:
  """Returns the bound by the corners of cubes in the box."""
  centres, radii = np.array(list(_boxes(model.radius))).T
  variation = special.expit(centres + radii) - special.expit(centres - radii)
  # Hypotheses that differ in very many records give no bound, and computing
  # it would need much memory.
  near = num_examples * variation < _FARTHEST
  bounds = radii[near]**2 * two_points.product_risk(
      variation[near], num_examples=num_examples, guarantee=guarantee)
  return Bound(model.dimension * float(bounds.max(initial=0.0)), 'cubes')


def bayes_bound(model: Model, *, num_examples: int) -> Bound:
  """Returns d times the Bayes risk of a count under a least favourable prior.

  Exact. 0 where n is too large for the grid of the prior.
  """
  name = 'least favourable prior'
  if not least_favourable.is_resolved(model, num_examples=num_examples,
                                      noise=0.0):
    return Bound(0.0, name)
  design = least_favourable.design(model, num_examples=num_examples, noise=0.0,
                                   guarantee=None)
  counts = np.arange(num_examples + 1)
  probs = stats.binom.pmf(counts, num_examples,
                          special.expit(design.thetas)[:, None])
  game = least_favourable.bayes(probs, design.thetas, design.game.prior)
  return Bound(model.dimension * game.lower, name)


def _lower(*, num_examples: int, guarantee: Guarantee, d: float, b: float
           ) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee."""
  model = _model(d, b)
  return (*_score_bounds(model, num_examples, guarantee),
          _cube_bound(model, num_examples, guarantee),
          bayes_bound(model, num_examples=num_examples))


def estimators(model: Model, *, num_examples: int, guarantee: Guarantee
               ) -> dict[str, likelihood.LikelihoodEstimator]:
  """Returns the estimators that keep the guarantee at this n, by name."""
  by_name: dict[str, likelihood.LikelihoodEstimator] = {}
  if guarantee and (guarantee.epsilon if isinstance(
      guarantee, notions.PureDP) else gaussian_noise.shift(guarantee)):
    noisy = likelihood.SufficientStatistics(
        model=model, num_examples=num_examples, guarantee=guarantee)
    by_name['noisy means'] = noisy
    if least_favourable.is_resolved(model, num_examples=num_examples,
                                    noise=noisy.noise):
      by_name['noisy means, minimax rule'] = likelihood.MinimaxStatistics(
          model=model, num_examples=num_examples, guarantee=guarantee)
  if isinstance(guarantee, notions.ZCDP) and guarantee.rho:
    by_name['output perturbation'] = likelihood.OutputPerturbation(
        model=model, num_examples=num_examples, rho=guarantee.rho)
    if guarantee.rho * num_examples**2 > model.dimension:
      by_name['descent'] = sgml.Descent(
          model=model, num_examples=num_examples, rho=guarantee.rho)
  return by_name


def descent_bound(estimator: sgml.Descent, sampling: float) -> float:
  """Bounds the largest risk of the descent by that of theta_ML (Minkowski)."""
  return (math.sqrt(sampling) + math.sqrt(estimator.utility))**2


def _upper(*, num_examples: int, guarantee: Guarantee, d: float, b: float
           ) -> tuple[study.Upper, ...]:
  """Returns largest risks; for the descent an upper bound."""
  model = _model(d, b)
  uppers = []
  for name, estimator in estimators(model, num_examples=num_examples,
                                    guarantee=guarantee).items():
    if isinstance(estimator, sgml.Descent):
      sampling = _non_private(num_examples=num_examples, d=d, b=b)
      uppers.append(study.Upper(descent_bound(estimator, sampling), name,
                                False))
    else:
      uppers.append(study.Upper(likelihood_risks.worst_theta(estimator)[1],
                                name, True))
  return tuple(uppers)


def _non_private(*, num_examples: int, d: float, b: float) -> float:
  """Returns the largest risk of theta_ML."""
  return likelihood_risks.worst_theta(likelihood.MaximumLikelihood(
      model=_model(d, b), num_examples=num_examples))[1]


def _trivial(*, d: float, b: float) -> float:
  """Returns the largest risk of the constant 0."""
  return d * b**2


def _model(d: float, b: float) -> Model:
  if d != int(d):
    raise ValueError(f'd must be a whole number, got {d}')
  return Model(dimension=int(d), radius=b)


def printed(*, num_examples: int, guarantee: Guarantee, d: float, b: float
            ) -> float:
  """Returns Lalanne (2023, Proposition 4.2.2) at gamma = beta / 2, for d >= 66.

  For charts: (4.6) with constants. True, but orders of magnitude too small, as
  its term d / (n^2 beta rho) lacks a factor d (MOD-EXPFAM, erratum E-19).
  """
  model = _model(d, b)
  return normal_bounds.proposition(
      num_examples=num_examples, guarantee=guarantee, dimension=model.dimension,
      radius=b, gamma=model.smoothness / 2, version='printed')


STUDY = study.Study(
    name='likelihood',
    help='log-odds of d independent coins, each in [-b, b]',
    loss='squared l2 error',
    parameters={'d': study.Parameter(5, 'number of coordinates'),
                'b': study.Parameter(1.0, 'bound of each log-odds')},
    lower=_lower, upper=_upper, non_private=_non_private, trivial=_trivial,
    notions=(notions.PureDP, notions.ApproxDP, notions.ZCDP,
             notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy))
