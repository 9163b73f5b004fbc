"""Flags that several command lines share; each declares those it reads."""

from absl import flags

EXPERIMENT = flags.DEFINE_string(
    'experiment', None, 'Name of the experiment, e.g. lip_tabular.')
OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'Folder to write to; made when it is not there.')
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'Folder of the data sets, one folder for each; '
    'DPJAX_DATA_DIR when not given.')
TRACEBACK = flags.DEFINE_bool(
    'traceback', False, 'Show where in the code an error was raised.')
