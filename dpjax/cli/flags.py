"""Flags shared by several command lines; each declares those it reads."""

from absl import flags

OUTPUT_DIR = flags.DEFINE_string(
    'output_dir', None, 'Folder to write to; created if missing.')
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'Folder with one folder for each data set. Default: the '
    'environment variable DPJAX_DATA_DIR.')
TRACEBACK = flags.DEFINE_bool(
    'traceback', False, 'Show the full traceback of an error.')
