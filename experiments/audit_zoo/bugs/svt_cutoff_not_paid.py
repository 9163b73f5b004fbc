"""Algorithm 4 of Lyu, Su and Li (2017): the noise ignores the cutoff.

It spends epsilon / 4 on the threshold and 3 epsilon / 4 on positive answers, as
if there were one. With c of them it costs (1 + 6 c) / 4 epsilon, at most. The
twin is Algorithm 1, see `sparse_vector.private`.
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

EPSILON, WIDTH, CUTOFF = 1.0, 8, 3
FAULTY = sparse_vector.Version(threshold_scale=4 / EPSILON,
                               query_scale=4 / (3 * EPSILON), cutoff=CUTOFF)
FIXED = sparse_vector.private(EPSILON, cutoff=CUTOFF)
WORST = Pair(np.zeros(WIDTH, np.float32),
             arrays.float32([1] * CUTOFF + [-1] * (WIDTH - CUTOFF)),
             'the first answers up, the others down')

BUG = bug.Bug(
    name='svt_cutoff_not_paid',
    title='The noise of the sparse vector technique does not grow with the '
          'number of positive answers.',
    source='Lyu, Su and Li (2017, Algorithm 4, after Lee and Clifton 2014), '
           'https://arxiv.org/abs/1603.01699',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=sparse_vector.epsilon_of(*WORST[:2], FAULTY),
    faulty=lambda key, data: sparse_vector.above(key, data, FAULTY)[0],
    fixed=lambda key, data: sparse_vector.above(key, data, FIXED)[0],
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=WORST)
