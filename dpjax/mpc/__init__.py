"""Private statistics by secure multi-party computation: no party sees the data.

Data owners secret-share their records among servers that are trusted not to
collude. For a curve each owner sends once and may leave; for sums of vectors
(`vector_sums`), such as gradients, it sends once per round. The servers add up
the shares and open only noisy sums. No JAX is used: all values are NumPy
integers modulo 2^k or modulo a prime, and randomness comes from the operating
system.

Trust model: all parties follow the protocol (semi-honest). A coalition of
servers below the scheme's threshold learns only the opened values and who took
part. Timing is not hidden. Source: Barczewski (2025, chapter 4 and section 6.4;
items EC-08, EC-13, EC-15 to EC-21).

Modules, in import order: prg, packing, additive, shamir, comparison, scheme,
schemes, noise, joint_noise, nodes, costs, vector_sums, parties.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.mpc.joint_noise import JointNoise as JointNoise
  from dpjax.mpc.schemes import AdditiveScheme as AdditiveScheme
  from dpjax.mpc.schemes import ComparisonScheme as ComparisonScheme
  from dpjax.mpc.schemes import OuterProductScheme as OuterProductScheme

__all__ = [
    'AdditiveScheme', 'ComparisonScheme', 'JointNoise', 'OuterProductScheme'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'JointNoise': 'joint_noise', 'AdditiveScheme': 'schemes',
      'ComparisonScheme': 'schemes', 'OuterProductScheme': 'schemes'})
