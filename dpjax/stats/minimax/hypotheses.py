"""Many hypotheses: the least mean of the K errors of a private test.

Data are n independent records; P_k^n is the law of the k-th hypothesis. Bounds
are means over d ~ Bin(n, t) of what privacy says at Hamming distance d, t being
the total variation of two laws of one record, or the weight of a mixture. All
bound the mean of the K errors, hence the largest; a packing of separation 2 r
has a squared error of r^2 times that, at least. Values below 0 say nothing.
Adjacency: REPLACE_ONE, n public. Sources: thesis 000, Theorems 3.2.3 and 3.2.4;
paper 004, Theorems 2 and 3 (item LB-2, LB-5 to LB-11, LB-14, E-05 to E-07).

Where the thesis couples all K laws at once (t' = 2 t / (1 + t) by Angel and
Spinka), nothing here does. P(guess i | P_i) less e^t times P(guess i | P_j) is
linear in each of the two, and divergences are jointly convex: two laws are
coupled at a time, and t itself counts (`pairs`, `fano`). Mixtures (1 - g) P_0 +
g P_k share the g n records that are not of P_0, so all are coupled, and a bound
is the best for each number B ~ Bin(n, g) of them (`mixture`).
"""

import math

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import bounds
from dpjax.stats.minimax import groups
from dpjax.stats.minimax import similarities
from dpjax.stats.minimax import testing
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Bound, Guarantee

# Standard deviations that a binomial law is followed to, on either side.
_REACH = 12.0
# Total variations are rounded up to one of so many; bounds stay valid.
_DISTINCT = 200


def contraction(variations: np.ndarray, *, guarantee: Guarantee,
                joint: float = 1.0) -> float:
  """LB-9: total variation of what is released, at most.

  Records are exchanged one after the other, and each moves the law by a times
  t_i; paper 004 has twice that (Theorem 2, erratum E-06), from a supremum of
  absolute values instead of a range.

  Args:
    variations: [n], t_i of each record.
    guarantee: a is its total variation.
    joint: TV_n, of all records together.
  """
  level = two_points.total_variation(guarantee)
  return float(min(joint, level * np.sum(np.asarray(variations, np.float64))))


def pairwise(variations: np.ndarray, *, num_examples: int,
             guarantee: notions.PureDP | notions.ApproxDP,
             joint: bool = False) -> float:
  """LB-5: Theorem 3.2.3, second term, with pairs i != j alone; at most 1/2.

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n.
    guarantee: pure or approximate.
    joint: whether laws of data sets are given, equal or n records apart.
  """
  moves = testing.moves(_off(variations))
  n, delta = num_examples, getattr(guarantee, 'delta', 0.0)
  lost = 2 * n * math.exp(-guarantee.epsilon) * delta
  if joint:
    alike = 1 + math.expm1(-n * guarantee.epsilon) * moves
  else:
    alike = np.power(1 + math.expm1(-guarantee.epsilon) * moves, n)
  return float(np.mean(alike - lost * moves) / 2)


def pairs(variations: np.ndarray, *, num_examples: int, guarantee: Guarantee,
          joint: bool = False) -> float:
  """The mean of `similarities.pairs`; two laws are coupled at a time.

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n.
    guarantee: any.
    joint: whether laws of data sets are given, equal or n records apart.
  """
  found, counts = _few(_off(variations))
  size = math.log(len(variations))
  weights = counts / counts.sum()
  if joint:
    d, probs = np.array([0, num_examples]), np.stack([1 - found, found], 1)
  else:
    d, probs = _binomials(num_examples, found)
  seen = weights @ probs

  def error(log_weight):
    excess = groups.excess(log_weight[..., None], d, guarantee)
    return similarities.share(log_weight, size) * ((1 - excess) @ seen)
  return float(similarities.largest(error, guarantee, size))


def fano(variations: np.ndarray, *, num_examples: int, guarantee: Guarantee
         ) -> float:
  """LB-6, LB-7 in full: exact divergences, exact lemma, pairs of laws.

  As printed: `testing.fano_pure` and `testing.fano_zcdp`.

  Args:
    variations: [K, K], t of one record; 0 on the diagonal.
    num_examples: n.
    guarantee: pure or zCDP, or it says nothing.
  """
  moved = groups.mean_divergence(np.asarray(variations, np.float64),
                                 num_examples=num_examples,
                                 guarantee=guarantee)
  return float(testing.decoding(np.mean(moved, 0).min(),
                                math.log(len(variations))))


def mixture_anchor(log_hypotheses: float, weight: float, *, num_examples: int,
                   guarantee: notions.PureDP) -> float:
  """LB-8: (K - 1) / K (1 - g (1 - e^-epsilon))^n, P_0 the anchor."""
  alike = math.log1p(weight * math.expm1(-guarantee.epsilon)) if (
      weight < 1) else -guarantee.epsilon
  return -math.expm1(-_hypotheses(log_hypotheses)) * math.exp(
      num_examples * alike)


def packing(log_hypotheses: float, weight: float, *, num_examples: int,
            guarantee: notions.PureDP | notions.ApproxDP) -> float:
  """LB-10: Theorem 3 of paper 004; always below 1/2.

  The chance that an estimate is at least HALF of the separation away from the
  truth; the paper says the separation (erratum E-07,
  `printed.printed_packing_risk`).

  Args:
    log_hypotheses: ln V.
    weight: g, of the mixture.
    num_examples: n.
    guarantee: pure or approximate.
  """
  epsilon, delta = guarantee.epsilon, getattr(guarantee, 'delta', 0.0)
  others = _log_others(log_hypotheses)
  m = math.ceil(num_examples * weight)
  lost = delta * (-math.expm1(-epsilon * m) / -math.expm1(-epsilon)
                  if epsilon else m)
  alike = math.exp(-epsilon * m)
  return (alike / 2 - lost) / max(math.exp(-others) + alike, 1e-300)


def packing_lemma(log_hypotheses: float, weight: float, *, num_examples: int,
                  guarantee: notions.PureDP | notions.ApproxDP) -> float:
  """LB-14: 1 - E min(1, e^(epsilon B) / V + delta (e^(epsilon B) - 1) / ...).

  Guesses at a data set of P_0 are right for one of V on average; P_k differs in
  B ~ Bin(n, g) records. `mixture` has this, `mixture_anchor` and `packing` as
  special cases.
  """
  epsilon, delta = guarantee.epsilon, getattr(guarantee, 'delta', 0.0)
  size = _hypotheses(log_hypotheses)
  d, probs = _binomials(num_examples, np.array([weight]))
  right = np.exp(np.minimum(epsilon * d - size, 0))
  if delta:
    grown = (np.expm1(np.minimum(epsilon * d, 700)) / math.expm1(epsilon)
             if epsilon else d)
    right = right + delta * grown
  return float(probs[0] @ (1 - np.minimum(1, right)))


def packing_lemma_around(log_hypotheses: float, variation: float, *,
                         num_examples: int, guarantee: notions.PureDP) -> float:
  """LB-14 around a base law: max over k of 1 - e^(epsilon k) / V - P(B > k).

  Args:
    log_hypotheses: ln V.
    variation: the largest total variation of a law of one record from P_0.
    num_examples: n.
    guarantee: pure.
  """
  size = _hypotheses(log_hypotheses)
  d, probs = _binomials(num_examples, np.array([variation]))
  inside = np.cumsum(probs[0])
  return float(np.max(inside - np.exp(np.minimum(
      guarantee.epsilon * d - size, 1))))


def around(log_hypotheses: float, variation: float, *, num_examples: int,
           guarantee: Guarantee) -> float:
  """Laws of which each is close to one base law P_0: sharper than LB-14.

  P(guess k | P_k) - e^t P(guess k | P_0) is at most the mean excess over B ~
  Bin(n, t_0), and the guesses at P_0 sum to 1: the error is at least 1 - e^t /
  V - E excess for every t. min(1, e^(epsilon k) ...) of the lemma is one t.

  Args:
    log_hypotheses: ln V.
    variation: t_0, the largest total variation of a law of one record from P_0.
    num_examples: n.
    guarantee: any.
  """
  size = _hypotheses(log_hypotheses)
  d, probs = _binomials(num_examples, np.array([variation]))

  def error(log_weight):
    excess = groups.excess(log_weight[..., None], d, guarantee)
    return (1 - excess) @ probs[0] - np.exp(log_weight - size)
  return float(similarities.largest(error, guarantee, size))


def mixture(log_hypotheses: float, weight: float, *, num_examples: int,
            guarantee: Guarantee) -> float:
  """Laws (1 - g) P_0 + g P_k: the best anchors for each number of records.

  Given B records that are not of P_0, the data sets are at most B apart, and
  all guesses are compared with those at each other (`similarities.pairs`,
  exact for n = 1), or at anchors that share the B records out evenly: with the
  part B_k of the k-th, V of them in turn, at distance B - B_k from X_k. The
  mean over B of the larger. Where the P_k have nothing in common, linear
  programmes (V to 5, n to 13) find no test that errs more than this without
  delta, nor with a small one.

  Args:
    log_hypotheses: ln V.
    weight: g.
    num_examples: n.
    guarantee: any.
  """
  size = _hypotheses(log_hypotheses)
  d, probs = _binomials(num_examples, np.array([weight]))
  many = math.exp(min(size, 700.0))
  each = np.floor(d / many)
  more = (d - each * many)[:, None] / many

  def error(log_weight):
    among = similarities.share(log_weight, size) * (1 - groups.excess(
        log_weight, d[:, None], guarantee))
    near = d - each
    parts = ((1 - more) * groups.excess(log_weight, near[:, None], guarantee)
             + more * groups.excess(log_weight, np.maximum(
                 near - 1, 0)[:, None], guarantee))
    return np.maximum(among, 1 - np.exp(np.minimum(log_weight - size, 700.0))
                      - parts)
  best = similarities.largest(error, guarantee, size)
  return float(probs[0] @ np.maximum(0, best))


def cube(separation: float, variations: np.ndarray, *, num_examples: int,
         guarantee: Guarantee) -> float:
  """LB-11: a squared error over {0, 1}^m, squared distances 2 tau d_H or more.

  tau / 4 times the sum of both errors of every bit (`testing.assouad`; the
  thesis has tau / 16, and half of the sum in Lemma 3.5.1, erratum E-21). Bits
  are tested given the others, and the bounds are convex in t: a mean over the
  others may be given.

  Args:
    separation: tau.
    variations: [m], t of one record for words that differ in that bit.
    num_examples: n.
    guarantee: any.
  """
  found = two_points.product_error(np.asarray(variations, np.float64),
                                   num_examples=num_examples,
                                   guarantee=guarantee)
  return float(testing.assouad(separation, found.size, np.mean(found)))


def best_packing_error(*, num_examples: int, guarantee: Guarantee,
                       log_hypotheses: float, weight: float | None = None,
                       around_variation: float | None = None,
                       variations: np.ndarray | None = None) -> Bound:
  """The best of the bounds that what is known of the hypotheses allows.

  Args:
    num_examples: n.
    guarantee: any.
    log_hypotheses: ln K, K at least 2.
    weight: g, of hypotheses (1 - g) P_0 + g P_k.
    around_variation: the largest total variation from one base law.
    variations: [K, K], of all pairs.

  Returns:
    At most the error of guessing, 1 - 1/K.
  """
  known = dict(num_examples=num_examples, guarantee=guarantee)
  size = _hypotheses(log_hypotheses)
  found = []
  if weight is not None:
    found.append(Bound(mixture(size, weight, **known), 'mixture'))
  if around_variation is not None:
    found.append(Bound(around(size, around_variation, **known), 'base law'))
  if variations is not None:
    found.append(Bound(pairs(variations, **known), 'pairs'))
    found.append(Bound(fano(variations, **known), 'Fano'))
  if not found:
    raise ValueError('give weight, around_variation or variations')
  return bounds.best(found, trivial=-math.expm1(-size))


def _hypotheses(log_hypotheses: float) -> float:
  if not log_hypotheses >= math.log(2) - 1e-12:
    raise ValueError('there must be 2 hypotheses at least, got ln V = '
                     f'{log_hypotheses}')
  return float(log_hypotheses)


def _log_others(log_hypotheses: float) -> float:
  """ln(V - 1)."""
  size = _hypotheses(log_hypotheses)
  return size + math.log(-math.expm1(-size))


def _off(variations: np.ndarray) -> np.ndarray:
  found = np.asarray(variations, np.float64)
  if found.ndim != 2 or found.shape[0] != found.shape[1] or len(found) < 2:
    raise ValueError('variations must be [K, K] of two laws at least, got '
                     f'shape {found.shape}')
  if not ((found >= 0) & (found <= 1)).all():
    raise ValueError('variations must lie in [0, 1]')
  return found[~np.eye(len(found), dtype=bool)]


def _few(variations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Distinct values and how often; rounded up where there are many."""
  found, counts = np.unique(variations, return_counts=True)
  if found.size <= _DISTINCT:
    return found, counts
  tops = np.linspace(found[0], found[-1], _DISTINCT)
  places = np.searchsorted(tops, variations - 1e-15)
  return tops, np.bincount(places, minlength=_DISTINCT)


def _binomials(num_examples: int, probs: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray]:
  """d, and P(Bin(n, t) = d) [T, D]; what is left out, below 1e-15, is lost."""
  errors.check_at_least('num_examples', num_examples, 1)
  if not ((probs >= 0) & (probs <= 1)).all():
    raise ValueError('weights and variations must lie in [0, 1]')
  mean = num_examples * probs
  reach = _REACH * np.sqrt(mean * (1 - probs)) + 50
  d = np.arange(max(0, math.floor(np.min(mean - reach))),
                min(num_examples, math.ceil(np.max(mean + reach))) + 1)
  return d, stats.binom.pmf(d, num_examples, probs[:, None])
