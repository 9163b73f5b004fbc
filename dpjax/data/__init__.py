"""Loads data sets with public feature bounds.

Every feature lies in [-1, 1]. It is computed from its own record and from
public constants in the code or in a schema: bounds, transforms and category
lists. So loading data costs no privacy budget.

Modules, in import order: files, columns, tabular, schemas, arrays, splits,
schema_files, user_tables, drafts, containers, pickles, tfds_records, images,
image_files, image_sets, registry, series.
"""

__all__ = [
  'arrays',
  'columns',
  'containers',
  'drafts',
  'files',
  'image_files',
  'image_sets',
  'images',
  'pickles',
  'registry',
  'schema_files',
  'schemas',
  'series',
  'splits',
  'tabular',
  'tfds_records',
  'user_tables',
]
