"""Nursery: 8 categorical features of an application, 5 recommendations.

The file has one record for each combination of the categories in its published
description.
"""

from dpjax.data import columns
from dpjax.data import tabular

SCHEMA = tabular.Schema(
  columns=(
    columns.Categorical('parents', ('usual', 'pretentious', 'great_pret')),
    columns.Categorical(
      'has_nurs',
      ('proper', 'less_proper', 'improper', 'critical', 'very_crit')),
    columns.Categorical(
      'form', ('complete', 'completed', 'incomplete', 'foster')),
    columns.Categorical('children', ('1', '2', '3', 'more')),
    columns.Categorical('housing', ('convenient', 'less_conv', 'critical')),
    columns.Categorical('finance', ('convenient', 'inconv')),
    columns.Categorical(
      'social', ('nonprob', 'slightly_prob', 'problematic')),
    columns.Categorical('health', ('recommended', 'priority', 'not_recom')),
    columns.Label(
      'class',
      (('not_recom',), ('recommend',), ('very_recom',), ('priority',),
       ('spec_prior',))),
  ))
