"""Draws for the tests through a meter, as releases do."""

from dpjax.privacy import exact
from dpjax.release import meter as meters
from dpjax.release.costs import Cost
from dpjax.release.query import Plan


def draw(plan: Plan, measured: object,
         below: exact.Draw) -> dict[str, object]:
  """Returns a release whose noise was charged exactly."""
  meter = meters.Meter(plan.cost, below)
  released = plan.draw(measured, meter)
  meter.check_spent()
  return released


class _Chosen(meters.Meter):
  """A meter that charges mechanisms, and answers as chosen."""

  def __init__(self, reserved, answers):
    super().__init__(reserved, None)
    self._answers = list(answers)

  def noisy(self, values, distribution, **sensitivities):
    """Returns the next of the chosen vectors."""
    self.charged(distribution.cost(**sensitivities))
    chosen = self._answers.pop(0)
    assert len(chosen) == len(list(values))
    return chosen

  def point(self, runs, scores, *, rate, sensitivity):
    """Returns the next of the chosen points."""
    self.charged(Cost(choices=(2 * rate * sensitivity,)))
    return self._answers.pop(0)


def chosen(plan: Plan, measured: object, *answers: object) -> dict[str, object]:
  """Returns a release whose mechanisms have given these answers."""
  meter = _Chosen(plan.cost, answers)
  released = plan.draw(measured, meter)
  meter.check_spent()
  return released
