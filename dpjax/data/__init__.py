"""Loads data sets with public feature bounds.

Every feature lies in [-1, 1]. It is computed from its own record and from
public bounds, transforms and category lists. So loading data costs no privacy
budget.

Modules, in import order: files, columns, tabular, schemas, arrays, splits,
schema_files, user_tables, drafts, containers, pickles, tfds_records, images,
streamed, image_files, image_sets, registry, series.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.data.arrays import Dataset as Dataset
  from dpjax.data.arrays import from_arrays as from_arrays
  from dpjax.data.images import ImageDataset as ImageDataset
  from dpjax.data.registry import image_names as image_names
  from dpjax.data.registry import load as load
  from dpjax.data.registry import names as names
  from dpjax.data.splits import train_test_split as train_test_split

__all__ = [
    'Dataset', 'ImageDataset', 'from_arrays', 'image_names', 'load', 'names',
    'train_test_split'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Dataset': 'arrays', 'from_arrays': 'arrays', 'ImageDataset': 'images',
      'image_names': 'registry', 'load': 'registry', 'names': 'registry',
      'train_test_split': 'splits'})
