"""The flag that all programs about experiments share."""

from absl import flags

EXPERIMENT = flags.DEFINE_string(
    'experiment', None, 'Name of the experiment, e.g. lip_tabular.')
