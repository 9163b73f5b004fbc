"""Private quantiles: the estimators of Lalanne (2023, chapter 6), and better.

  quantiles(key, x, [.25, .5, .75], epsilon=1.0, lower=0, upper=100,
            adjacency='replace_one')

Take `key` from `dpjax.privacy.keys.system_keys` if others will see the result.
A seeded key is for research only: whoever knows the seed can remove the noise.

Modules, in import order: quantile_levels, rates, records, choice, mechanism,
wide, columns, paths, independent, recursive, joint, inversion, curves,
histogram, trees, smoothing, knots, unbounded, api.
"""


