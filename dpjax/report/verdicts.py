"""What is said of a printed claim after trying it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpjax import errors
from dpjax.report import tables

AGREES = 'agrees'
DIFFERS = 'differs'
NOT_COMPARABLE = 'not comparable'
NOT_RUN = 'not run'
OUTCOMES = (AGREES, DIFFERS, NOT_COMPARABLE, NOT_RUN)


class Verdict(NamedTuple):
  """One claim of a paper beside ours.

  Attributes:
    claim: what is claimed, in a few words.
    printed: the number in the paper, as text.
    ours: our number, as text.
    verdict: one of OUTCOMES.
    reason: the band it agrees within, by how much and why it differs, or why
      it cannot be compared.
  """
  claim: str
  printed: str
  ours: str
  verdict: str
  reason: str


HEADERS = Verdict._fields


def check(verdicts: Iterable[Sequence[str]]) -> list[Verdict]:
  """Returns verdicts given as tuples, once they are known to be complete."""
  checked = [Verdict(*verdict) for verdict in verdicts]
  for verdict in checked:
    errors.check_choice('verdict', verdict.verdict, OUTCOMES)
    if not verdict.reason:
      raise ValueError(f'the verdict on {verdict.claim!r} must have a reason')
  return checked


def tally(verdicts: Iterable[Verdict]) -> str:
  """Returns e.g. '2 agrees, 1 not comparable'."""
  found = [verdict.verdict for verdict in verdicts]
  return ', '.join(f'{found.count(outcome)} {outcome}'
                   for outcome in OUTCOMES if outcome in found)


def markdown(verdicts: Sequence[Verdict]) -> str:
  """Returns the verdicts as a Markdown table."""
  return tables.markdown(HEADERS, verdicts)
