"""Experiments: settings are data, and reports are functions of rows.

Ids such as DEN-B4 are items of experiments/catalogue, which names the places in
the papers. Errata such as E19 are explained in experiments/ERRATA.md.
"""
