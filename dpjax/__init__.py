"""dpjax: private training and private statistics in JAX.

`dpjax.make_private` makes the training loop of a user private, with a model of
any library; `dpjax.cite` prints the references of what a run used.

Packages, which are imported when they are first used:

* `dpjax.privacy`: adjacency, mechanisms, noise, accounting
* `dpjax.sampling`: Poisson batches of static shape, and their privacy event
* `dpjax.train`: private training runs; `dpjax.runs`: runs as configurations
* `dpjax.grads`: bounded sums of per-record gradients, and their noise
* `dpjax.lipschitz`: certified norms, weight constraints, gradient bounds
* `dpjax.features`: features of images and tables that need no data
* `dpjax.models`: small networks
* `dpjax.tables`: readers and writers of files and columns in memory
* `dpjax.data`: data sets with public bounds, and tables of the user
* `dpjax.stats`: private estimates of arrays, with confidence intervals
* `dpjax.theory`: lower bounds on risks, and estimators close to them
* `dpjax.release`: private statistics with exact noise and a ledger of budget
* `dpjax.mpc`: statistics that several parties compute and none of them sees
* `dpjax.audit`: tests of a privacy claim against what really ran

The names in the `__all__` of these packages are public; of a module listed
there (`train.methods`), its functions and classes. They change only with
notice, in a new minor version. All other modules may change at any time.

Examples here and in all modules presume `import jax`, `import numpy as np` and
`import jax.numpy as jnp`.

Examples:
  >>> from dpjax import privacy
  >>> steps = privacy.poisson_gaussian_event(
  ...     sampling_prob=0.01, noise_multiplier=1.0, num_steps=1000)
  >>> adjacency = privacy.Adjacency.ADD_OR_REMOVE_ONE
  >>> round(privacy.epsilon(steps, delta=1e-5, adjacency=adjacency), 2)
  1.83
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax import audit as audit
  from dpjax import data as data
  from dpjax import features as features
  from dpjax import grads as grads
  from dpjax import lipschitz as lipschitz
  from dpjax import models as models
  from dpjax import mpc as mpc
  from dpjax import privacy as privacy
  from dpjax import release as release
  from dpjax import runs as runs
  from dpjax import sampling as sampling
  from dpjax import stats as stats
  from dpjax import tables as tables
  from dpjax import theory as theory
  from dpjax import train as train
  from dpjax.train.citing import cite as cite
  from dpjax.train.private import make_private as make_private

__all__ = [
    'audit', 'cite', 'data', 'features', 'grads', 'lipschitz', 'make_private',
    'models', 'mpc', 'privacy', 'release', 'runs', 'sampling', 'stats',
    'tables', 'theory', 'train'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'cite': 'train.citing', 'make_private': 'train.private'})

__version__ = '0.1.0'
