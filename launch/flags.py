"""The flags that programs about experiments share."""

from absl import flags

EXPERIMENT = flags.DEFINE_string(
    'experiment', None, 'Name of the experiment, e.g. lip_tabular.')
STATE_DIR = flags.DEFINE_string(
    'state_dir', None, 'Folder of the files that unfinished settings resume '
    'from. Default: state in --output_dir.')
