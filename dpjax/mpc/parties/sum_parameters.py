"""The public parameters of a study of sums, in many rounds."""

import dataclasses
import functools
import hashlib
import json

from dpjax import errors
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.vector_sums import VectorSum


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumParameters(Agreement):
  """Public parameters: the sum of a round, its noise, and how many rounds.

  All rounds together cost `num_rounds` times the rho of `VectorSum`, for the
  replace-one relation between owners. The set of owners who took part in a
  round is public; a sum of fewer than `min_owners` is not opened.

  Attributes:
    length: d, entries of an owner's vector.
    bound: S, bound of the l2 norm of an owner's vector in every round.
    granularity_bits: b; vectors are rounded to multiples of S / 2^b.
    value_bits: k; shares are modulo 2^k.
    noise_variance: variance of each server's noise per entry and round, in
      squared units of the granularity; see `VectorSum`.
    num_rounds: T, at most so many sums are opened.
  """
  length: int
  bound: float
  granularity_bits: int
  value_bits: int
  noise_variance: int
  num_rounds: int

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_rounds', self.num_rounds, 1)
    self.vector_sum.check_width(self.num_owners)
    longest = enrolment.AROUND_BYTES + self.vector_sum.message_bytes(
        self.num_servers - 1)
    if longest > channel.MAX_PAYLOAD:
      raise ValueError(f'length must be smaller: a message of {longest} bytes '
                       f'is above the limit of {channel.MAX_PAYLOAD}')

  @functools.cached_property
  def vector_sum(self) -> VectorSum:
    """Returns the sum of one round."""
    return VectorSum(
        length=self.length, num_servers=self.num_servers, bound=self.bound,
        granularity_bits=self.granularity_bits, value_bits=self.value_bits,
        noise_variance=self.noise_variance)

  def round_digest(self, number: int, message: bytes) -> bytes:
    """Returns the digest that messages of a round are sealed for.

    It binds an owner's vector to this study, to the round and to the public
    message that the owner computed the vector from. A server cannot open what
    was sealed for another round or another message.

    Args:
      number: number of the round, from 0.
      message: public message of the round.
    """
    return hashlib.sha256(
        b'dpjax round' + self.digest + number.to_bytes(8) +
        hashlib.sha256(message).digest()).digest()


def from_bytes(data: bytes) -> SumParameters:
  """Reads parameters written by `to_bytes`; raises a ValueError for others."""
  try:
    return SumParameters(**json.loads(data))
  except TypeError as error:
    raise ValueError(f'not the parameters of a study of sums: {error}'
                     ) from error
