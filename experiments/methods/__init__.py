"""Methods that only reproductions of papers and tests use.

`training`: methods and packs of networks; `mechanisms`: mechanisms and their
privacy; `sparsity`: sparse networks; `attacks`: membership inference by shadow
networks; `statistics`: estimators and bounds kept for comparison; `theory`:
printed bounds, conversions between definitions, and optima of small problems.

Ids such as DEN-B4 are items of experiments/catalogue, which names the places in
the papers. Errata such as E19 are explained in experiments/ERRATA.md.
"""
