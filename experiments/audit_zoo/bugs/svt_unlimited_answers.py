"""Algorithm 6 of Lyu, Su and Li (2017): positive answers are unlimited.

Each positive answer costs epsilon again, so with w queries half of which move
up and half down, the cost grows linearly in w. The twin is Algorithm 1, see
`sparse_vector.private`.
"""

import math

import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug
from experiments.audit_zoo import sparse_vector

EPSILON, WIDTH = 1.0, 8
FAULTY = sparse_vector.Version(threshold_scale=2 / EPSILON,
                               query_scale=2 / EPSILON, cutoff=WIDTH)
FIXED = sparse_vector.private(EPSILON, cutoff=2)
WORST = Pair(np.zeros(WIDTH, np.float32),
             np.repeat(arrays.float32([1, -1]), WIDTH // 2),
             'half of the answers up, half down')

BUG = bug.Bug(
    name='svt_unlimited_answers',
    title='The sparse vector technique never stops, and pays for one positive '
          'answer.',
    source='Lyu, Su and Li (2017, Algorithm 6, after Chen et al. 2015), '
           'https://arxiv.org/abs/1603.01699',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=sparse_vector.epsilon_of(*WORST[:2], FAULTY),
    faulty=lambda key, data: sparse_vector.above(key, data, FAULTY)[0],
    fixed=lambda key, data: sparse_vector.above(key, data, FIXED)[0],
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=WORST)
