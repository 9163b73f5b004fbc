"""Lower bounds for the mean error of a private test among K hypotheses.

Data are n independent records; P_k^n is their distribution under the k-th
hypothesis. The error of hypothesis k is the probability that the test is wrong
under P_k^n. A bound is a mean over d ~ Bin(n, t) of the least error that
privacy allows for data sets at Hamming distance d, where t is the total
variation of two distributions of one record, or the weight of a mixture. A
bound on the mean of the K errors is also one on the largest. With a packing of
separation 2 r, the squared error is at least r^2 times the bound. Values below
0 prove nothing. Adjacency: REPLACE_ONE, n public.
Source: Lalanne (2023, Theorems 3.2.3 and 3.2.4); Barber and Duchi (2014,
Theorems 2 and 3) (item LB-2, LB-5 to LB-11, LB-14, E-05 to E-07).

Lalanne (2023) couples all K distributions at once (t' = 2 t / (1 + t) by Angel
and Spinka). That is not needed: P(guess i | P_i) minus e^t times P(guess i |
P_j) is linear in each of the two, and divergences are jointly convex. So two
distributions are coupled at a time, with t itself (`pairs`, `fano`). Mixtures
(1 - g) P_0 + g P_k share all records but the B ~ Bin(n, g) that are not of P_0,
so all K are coupled, and the best bound is taken for each B (`mixture`).
"""

import math

import numpy as np

from dpjax.privacy import notions
from dpjax.theory.minimax import bounds
from dpjax.theory.minimax import hypotheses
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.minimax.bounds import Setting
from experiments.methods.theory import groups
from experiments.methods.theory import similarities
from experiments.methods.theory import testing

# Total variations are rounded up to one of this many values; bounds stay valid.
_DISTINCT = 200


def contraction(variations: np.ndarray, *, guarantee: Guarantee,
                joint: float = 1.0) -> float:
  """Bounds the total variation of the released distributions (LB-9).

  Records are exchanged one after the other, and each moves the distribution by
  at most a t_i. Barber and Duchi (2014, Theorem 2) have twice that (erratum
  E-06), from a supremum of absolute values instead of a range.

  Args:
    variations: [n], t_i of each record.
    guarantee: a is its total variation.
    joint: TV_n, total variation of all records together.
  """
  level = two_points.total_variation(guarantee)
  return float(min(joint, level * np.sum(np.asarray(variations, np.float64))))


def pairwise(variations: np.ndarray, *, num_examples: int,
             guarantee: notions.PureDP | notions.ApproxDP,
             joint: bool = False) -> float:
  """Bounds the mean error by Lalanne (2023, Theorem 3.2.3, second term) (LB-5).

  With pairs i != j only; at most 1/2.

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n, the number of records.
    guarantee: pure or approximate guarantee of the release.
    joint: whether `variations` are of data sets, which then differ in 0 or n
      records.
  """
  # All K distributions are coupled at once, so records differ more often.
  coupled = testing.moves(_off(variations))
  n, delta = num_examples, getattr(guarantee, 'delta', 0.0)
  loss = 2 * n * math.exp(-guarantee.epsilon) * delta
  if joint:
    alike = 1 + math.expm1(-n * guarantee.epsilon) * coupled
  else:
    alike = np.power(1 + math.expm1(-guarantee.epsilon) * coupled, n)
  return float(np.mean(alike - loss * coupled) / 2)


def pairs(variations: np.ndarray, *, num_examples: int, guarantee: Guarantee,
          joint: bool = False) -> float:
  """Returns the mean of `similarities.pairs`, two distributions at a time.

  Args:
    variations: [K, K], t of one record, or TV_n of all of them if `joint`.
    num_examples: n, the number of records.
    guarantee: any guarantee of the release.
    joint: whether `variations` are of data sets, which then differ in 0 or n
      records.
  """
  distinct, counts = _few(_off(variations))
  size = math.log(len(variations))
  weights = counts / counts.sum()
  if joint:
    d = np.array([0, num_examples])
    probs = np.stack([1 - distinct, distinct], 1)
  else:
    d, probs = hypotheses.binomials(num_examples, distinct)
  seen = weights @ probs

  def error(log_weight: np.ndarray) -> np.ndarray:
    excess = groups.excess(log_weight[..., None], d, guarantee)
    return similarities.weight_of_others(log_weight, size) * (
        (1 - excess) @ seen)
  return float(similarities.largest(error, guarantee, size))


def fano(variations: np.ndarray, *, num_examples: int, guarantee: Guarantee
         ) -> float:
  """Bounds the mean error by Fano's lemma in full (LB-6, LB-7).

  With exact divergences and pairs of distributions. The printed bounds are
  `testing.fano_pure` and `testing.fano_zcdp`.

  Args:
    variations: [K, K], t of one record; 0 on the diagonal.
    num_examples: n, the number of records.
    guarantee: pure or zCDP; for others the bound is 0.
  """
  divergences = groups.mean_divergence(np.asarray(variations, np.float64),
                                       num_examples=num_examples,
                                       guarantee=guarantee)
  return float(testing.decoding(np.mean(divergences, 0).min(),
                                math.log(len(variations))))


def mixture_anchor(log_hypotheses: float, weight: float, *, num_examples: int,
                   guarantee: notions.PureDP) -> float:
  """Returns (K - 1) / K (1 - g (1 - e^-epsilon))^n, with P_0 as anchor (LB-8).
  """
  alike = math.log1p(weight * math.expm1(-guarantee.epsilon)) if (
      weight < 1) else -guarantee.epsilon
  return -math.expm1(-hypotheses.checked_size(log_hypotheses)) * math.exp(
      num_examples * alike)


def packing(log_hypotheses: float, weight: float, *, num_examples: int,
            guarantee: notions.PureDP | notions.ApproxDP) -> float:
  """Returns the bound of Barber and Duchi (2014, Theorem 3), < 1/2 (LB-10).

  It bounds the probability that an estimate is at least HALF of the separation
  away from the truth; the paper has the whole separation (erratum E-07).

  Args:
    log_hypotheses: ln V, where V is the number of hypotheses.
    weight: weight g of the mixture.
    num_examples: n, the number of records.
    guarantee: pure or approximate guarantee of the release.
  """
  epsilon, delta = guarantee.epsilon, getattr(guarantee, 'delta', 0.0)
  others = _log_others(log_hypotheses)
  m = math.ceil(num_examples * weight)  # Barber and Duchi's group size.
  loss = delta * (-math.expm1(-epsilon * m) / -math.expm1(-epsilon)
                  if epsilon else m)
  alike = math.exp(-epsilon * m)
  return (alike / 2 - loss) / max(math.exp(-others) + alike, 1e-300)


def packing_lemma(log_hypotheses: float, weight: float, *, num_examples: int,
                  guarantee: notions.PureDP | notions.ApproxDP) -> float:
  """Returns 1 - E min(1, e^(epsilon B) / V + delta (e^(epsilon B) - 1) / ..).

  A guess from a data set of P_0 is right for one of V hypotheses on average;
  data of P_k differ in B ~ Bin(n, g) records. `mixture` includes this bound,
  `mixture_anchor` and `packing` as special cases (LB-14).
  """
  epsilon, delta = guarantee.epsilon, getattr(guarantee, 'delta', 0.0)
  size = hypotheses.checked_size(log_hypotheses)
  d, probs = hypotheses.binomials(num_examples, np.array([weight]))
  # A probability is at most 1, which also keeps the exponential finite.
  right = np.exp(np.minimum(epsilon * d - size, 0))
  if delta:
    grown = (np.expm1(np.minimum(epsilon * d, 700)) / math.expm1(epsilon)
             if epsilon else d)
    right = right + delta * grown
  return float(probs[0] @ (1 - np.minimum(1, right)))


def around(log_hypotheses: float, variation: float, *, num_examples: int,
           guarantee: Guarantee) -> float:
  """Bounds the mean error of distributions close to one, P_0; beats LB-14.

  P(guess k | P_k) - e^t P(guess k | P_0) is at most the mean excess over B ~
  Bin(n, t_0), and the guesses at P_0 sum to 1. So the error is at least 1 - e^t
  / V - E excess for every t. The min(1, e^(epsilon k) ...) of the lemma
  corresponds to one t.

  Args:
    log_hypotheses: ln V, where V is the number of hypotheses.
    variation: t_0, largest total variation of a distribution of one record from
      P_0.
    num_examples: n, the number of records.
    guarantee: any guarantee of the release.
  """
  size = hypotheses.checked_size(log_hypotheses)
  d, probs = hypotheses.binomials(num_examples, np.array([variation]))

  def error(log_weight: np.ndarray) -> np.ndarray:
    excess = groups.excess(log_weight[..., None], d, guarantee)
    return (1 - excess) @ probs[0] - np.exp(log_weight - size)
  return float(similarities.largest(error, guarantee, size))


def mixture(log_hypotheses: float, weight: float, *, num_examples: int,
            guarantee: Guarantee) -> float:
  """Bounds the error for distributions (1 - g) P_0 + g P_k, by best anchors.

  Given B records that are not of P_0, the data sets are at most B apart.
  Guesses are compared either with those at each other (`similarities.pairs`,
  exact for n = 1), or at anchors that split the B records evenly: an anchor has
  B_k records of the k-th hypothesis, for V rotations, and distance B - B_k from
  X_k. The bound is the mean over B of the larger value. Where the P_k have
  nothing in common, linear programmes (V to 5, n to 13) find no test that errs
  more than this, without delta or with a small one.

  Args:
    log_hypotheses: ln V, where V is the number of hypotheses.
    weight: weight g of the mixture.
    num_examples: n, the number of records.
    guarantee: any guarantee of the release.
  """
  size = hypotheses.checked_size(log_hypotheses)
  d, probs = hypotheses.binomials(num_examples, np.array([weight]))
  many = math.exp(min(size, 700.0))
  # An anchor shares `each` or `each` + 1 of the B records with X_k, the latter
  # with probability `more`.
  each = np.floor(d / many)
  more = (d - each * many)[:, None] / many

  def error(log_weight: np.ndarray) -> np.ndarray:
    among = similarities.weight_of_others(log_weight, size) * (
        1 - groups.excess(log_weight, d[:, None], guarantee))
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
  """Bounds a squared error over the cube {0, 1}^m (LB-11).

  Squared distances are at least 2 tau d_H. The bound is tau / 4 times the sum
  of both errors of every bit (`testing.assouad`); Lalanne (2023) has tau / 16,
  and half of the sum in Lemma 3.5.1 (erratum E-21). Bits are tested given the
  others, and the bounds are convex in t, so a mean of t over the others may be
  given.

  Args:
    separation: tau; squared distances are at least 2 tau d_H.
    variations: [m], t of one record for words that differ in that bit.
    num_examples: n, the number of records.
    guarantee: any guarantee of the release.
  """
  bit_errors = two_points.product_error(np.asarray(variations, np.float64),
                                        num_examples=num_examples,
                                        guarantee=guarantee)
  return float(testing.assouad(separation, bit_errors.size,
                               np.mean(bit_errors)))


def best_packing_error(*, num_examples: int, guarantee: Guarantee,
                       log_hypotheses: float, weight: float | None = None,
                       around_variation: float | None = None,
                       variations: np.ndarray | None = None) -> Bound:
  """Returns the best bound that the known properties of the hypotheses allow.

  Args:
    num_examples: n, the number of records.
    guarantee: any guarantee of the release.
    log_hypotheses: ln K, K at least 2.
    weight: g, for hypotheses (1 - g) P_0 + g P_k.
    around_variation: largest total variation from one base distribution.
    variations: [K, K] total variations of all pairs.

  Returns:
    A bound of at most the error of guessing, 1 - 1/K.
  """
  known = Setting(num_examples=num_examples, guarantee=guarantee)
  size = hypotheses.checked_size(log_hypotheses)
  candidates = []
  if weight is not None:
    candidates.append(Bound(mixture(size, weight, **known), 'mixture'))
  if around_variation is not None:
    candidates.append(Bound(around(size, around_variation, **known),
                            'base law'))
  if variations is not None:
    candidates.append(Bound(pairs(variations, **known), 'pairs'))
    candidates.append(Bound(fano(variations, **known), 'Fano'))
  if not candidates:
    raise ValueError('give at least one of weight, around_variation and '
                     'variations')
  return bounds.best(candidates, trivial=-math.expm1(-size))


def _log_others(log_hypotheses: float) -> float:
  """Returns ln(V - 1), without overflow for large V."""
  size = hypotheses.checked_size(log_hypotheses)
  return size + math.log(-math.expm1(-size))


def _off(variations: np.ndarray) -> np.ndarray:
  """Checks variations [K, K] and returns all but the diagonal."""
  square = np.asarray(variations, np.float64)
  if square.ndim != 2 or square.shape[0] != square.shape[1] or len(square) < 2:
    raise ValueError('variations must be [K, K] with K at least 2, got '
                     f'shape {square.shape}')
  if not ((square >= 0) & (square <= 1)).all():
    raise ValueError('variations must lie in [0, 1]')
  return square[~np.eye(len(square), dtype=bool)]


def _few(variations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns distinct values and their counts; rounds up if there are too many.
  """
  distinct, counts = np.unique(variations, return_counts=True)
  if distinct.size <= _DISTINCT:
    return distinct, counts
  tops = np.linspace(distinct[0], distinct[-1], _DISTINCT)
  places = np.searchsorted(tops, variations - 1e-15)
  return tops, np.bincount(places, minlength=_DISTINCT)
