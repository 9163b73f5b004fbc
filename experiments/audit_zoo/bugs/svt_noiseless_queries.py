"""Algorithm 5 of Lyu, Su and Li (2017): only the threshold is noisy.

Two answers on different sides of the threshold bound its noise between the two
exact numbers. If a neighbour exchanges the two, the same answers are
impossible. The twin is Algorithm 1, see `sparse_vector.private`.
"""

import math

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug
from experiments.audit_zoo import sparse_vector

EPSILON, WIDTH = 1.0, 4
FAULTY = sparse_vector.Version(threshold_scale=2 / EPSILON, query_scale=0.0,
                               cutoff=WIDTH)
FIXED = sparse_vector.private(EPSILON, cutoff=WIDTH)

BUG = bug.Bug(
    name='svt_noiseless_queries',
    title='The sparse vector technique compares exact answers with a noisy '
          'threshold.',
    source='Lyu, Su and Li (2017, Algorithm 5, after Stoddard et al. 2014), '
           'https://arxiv.org/abs/1603.01699',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=math.inf,
    faulty=lambda key, data: sparse_vector.above(key, data, FAULTY)[0],
    fixed=lambda key, data: sparse_vector.above(key, data, FIXED)[0],
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=Pair(arrays.float32([0, 1, 0, 1]), arrays.float32([1, 0, 1, 0]),
               'answers exchange sides'))
