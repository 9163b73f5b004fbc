"""Audits: statistical tests of whether an implementation keeps its claim.

Modules, in import order: bounds, curves, one_run_program, one_run_tight,
one_run, claims, empirical, whitebox, steps, canary, target, records, spaces,
wrapping, noise, exact, declared, intervals, lattices, learned, partitions,
events, blackbox, power, betting, sequential, mining, ranking, ascent, search,
recording, replay, report, games, auditor, membership, attacks, suite.

An audit can refute a privacy claim but never prove it. A claim that passes is
"not falsified".
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.audit.attacks import each_as_target as each_as_target
  from dpjax.audit.attacks import lira as lira
  from dpjax.audit.attacks import loss_threshold as loss_threshold
  from dpjax.audit.attacks import rmia as rmia
  from dpjax.audit.auditor import audit as audit
  from dpjax.audit.auditor import Report as Report
  from dpjax.audit.bounds import epsilon_lower_bound as epsilon_lower_bound
  from dpjax.audit.claims import Claim as Claim
  from dpjax.audit.curves import PrivacyCurve as PrivacyCurve
  from dpjax.audit.membership import ceiling as ceiling
  from dpjax.audit.membership import ceiling_of_event as ceiling_of_event
  from dpjax.audit.membership import measures as measures
  from dpjax.audit.membership import roc as roc
  from dpjax.audit.target import Pair as Pair
  from dpjax.audit.target import Target as Target
  from dpjax.audit.wrapping import of_mechanism as of_mechanism

__all__ = [
    'Claim', 'Pair', 'PrivacyCurve', 'Report', 'Target', 'audit', 'ceiling',
    'ceiling_of_event', 'each_as_target', 'epsilon_lower_bound', 'lira',
    'loss_threshold', 'measures', 'of_mechanism', 'rmia', 'roc'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'each_as_target': 'attacks', 'lira': 'attacks',
      'loss_threshold': 'attacks', 'rmia': 'attacks', 'Report': 'auditor',
      'audit': 'auditor', 'epsilon_lower_bound': 'bounds', 'Claim': 'claims',
      'PrivacyCurve': 'curves', 'ceiling': 'membership',
      'ceiling_of_event': 'membership', 'measures': 'membership',
      'roc': 'membership', 'Pair': 'target', 'Target': 'target',
      'of_mechanism': 'wrapping'})
