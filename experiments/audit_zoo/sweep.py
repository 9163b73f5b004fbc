"""Settings of the zoo: every bug, with its fixed twin, under every auditor.

  python -m launch.sweep --experiment=audit_zoo \
    --output_dir=experiments/audit_zoo/results

Kinds of settings:
  audit   one audit of one release; `auditor` and `twin` say of which by whom
  alarms  `num_audits` black-box audits of the fixed twin, with fewer runs each,
          to count those that refute its true claim

The other auditors must be installed (`peers.py` says how); --tag=own leaves
them out. A bug is a file of `bugs`, and it adds settings.
"""

from collections.abc import Sequence
import dataclasses

from experiments.audit_zoo import registry

PAPERS = ('003',)
ARTEFACT = ('the zoo: bugs of private software, and which auditor finds them '
            '(AUD-16)')
COST = '0.8 h on 2 CPU cores'
HEADLINES = ('the black-box audit', 'fixed twins that', 'false alarms')
BATCHED = ('auditor', 'twin')
REPRODUCE = 'own'
TIMES = ('seconds',)
PACKAGES = ('jax_privacy', 'tensorflow_cpu', 'tensorflow', 'numba')

AUDITORS = ('dpjax_black_box', 'dpjax_replay', 'dp_auditorium', 'jax_privacy',
            'statdp')
OWN = AUDITORS[:2]
TWINS = ('faulty', 'fixed')
ALARM_RUNS, ALARM_AUDITS = 1000, 17
NOTE = 'note: '
"""Beginning of the metric that has what an auditor says in words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """One audit of a bug or of its fixed twin, or many of the twin.

  Attributes:
    kind: name from the list above.
    bug: name of the bug.
    auditor: name of the auditor.
    twin: 'faulty' or 'fixed'.
    num_runs: counted releases of each side; 0 for the auditor's default.
    num_audits: number of audits with different keys.
    seed: seed of all audits.
  """
  kind: str
  bug: str
  auditor: str = AUDITORS[0]
  twin: str = TWINS[0]
  num_runs: int = 0
  num_audits: int = 1
  seed: int = 0

  @property
  def method(self) -> str:
    """Returns the auditor."""
    return self.auditor

  @property
  def dataset(self) -> str:
    """Returns the bug."""
    return self.bug


def audits(bugs: Sequence[str],
           auditors: Sequence[str] = AUDITORS) -> tuple[Setting, ...]:
  """Returns the settings of audits of some bugs."""
  return tuple(Setting(kind='audit', bug=bug, auditor=auditor, twin=twin)
               for bug in bugs for auditor in auditors for twin in TWINS)


def alarms(bugs: Sequence[str],
           num_audits: int = ALARM_AUDITS) -> tuple[Setting, ...]:
  """Returns the settings that count false alarms of some bugs."""
  return tuple(Setting(kind='alarms', bug=bug, twin='fixed',
                       num_runs=ALARM_RUNS, num_audits=num_audits)
               for bug in bugs)


_SMALL = ('exponential_rate',)
SETTINGS = (*audits(registry.names()), *alarms(registry.names()))
SMOKE = (*audits(_SMALL, AUDITORS[:1]), *alarms(_SMALL, 2))
TAGS = {
    'own': lambda setting: setting.auditor in OWN,
    'alarms': lambda setting: setting.kind == 'alarms',
    'audits': lambda setting: setting.kind == 'audit',
    'quick': SMOKE}
