"""Verdicts on the printed claims of papers after reproduction."""

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
  """A claim of a paper and what our rows say of it.

  Attributes:
    claim: the claim in a few words.
    printed: the number in the paper, as text.
    ours: our number, as text.
    verdict: one of OUTCOMES.
    reason: the tolerance within which both agree, by how much and why they
      differ, or why they cannot be compared.
  """
  claim: str
  printed: str
  ours: str
  verdict: str
  reason: str


HEADERS = Verdict._fields


def check(verdicts: Iterable[Sequence[str]]) -> list[Verdict]:
  """Checks verdicts given as tuples and returns them as `Verdict`s.

  Raises:
    ValueError: if an outcome is unknown or a reason is missing.
  """
  checked = [Verdict(*verdict) for verdict in verdicts]
  for verdict in checked:
    errors.check_choice('verdict', verdict.verdict, OUTCOMES)
    if not verdict.reason:
      raise ValueError(f'the verdict on {verdict.claim!r} must have a reason')
  return checked


def tally(verdicts: Iterable[Verdict]) -> str:
  """Counts verdicts by outcome, e.g. '2 agrees, 1 not comparable'."""
  outcomes = [verdict.verdict for verdict in verdicts]
  return ', '.join(f'{outcomes.count(outcome)} {outcome}'
                   for outcome in OUTCOMES if outcome in outcomes)


def markdown(verdicts: Sequence[Verdict]) -> str:
  """Returns the verdicts as a Markdown table."""
  return tables.markdown(HEADERS, verdicts)
