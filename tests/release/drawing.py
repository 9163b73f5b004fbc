"""Draws for the tests: through a meter, as releases do."""

from dpjax.privacy import exact
from dpjax.release import meter as meters
from dpjax.release.query import Plan


def draw(plan: Plan, measured: object,
         below: exact.Draw) -> dict[str, object]:
  """Returns a release whose noise was charged, all of it and no more."""
  meter = meters.Meter(plan.cost, below)
  released = plan.draw(measured, meter)
  meter.check_spent()
  return released
