"""Stores errors that separate programs computed, 50 runs each (item QF-19)."""

_COLUMNS = ('emp', 'ind', 'rec_printed', 'rec_printed_add', 'rec_kaplan_add',
            'hist_raw')
_TABLE = """
beta_0.5_0.5   1 .0067 .0071 .0095 .0080 .0071 .0315
beta_0.5_0.5   5 .0094 .0357 .0495 .0254 .0168 .0527
beta_0.5_0.5  10 .0112 .0607 .0758 .0457 .0337 .0523
beta_0.5_0.5  40 .0099 .0982 .1170 .0716 .0496 .0624
beta_0.5_0.5 100 .0118 .1389 .1264 .0821 .0589 .0631
beta_0.5_0.5 200 .0112 -     .1372 .0874 .0742 .0621
beta_1_1       5 .0062 .0263 .0385 .0198 .0114 .0339
beta_1_1      10 .0064 .0454 .0549 .0306 .0228 .0380
beta_1_1      40 .0087 .1709 .0921 .0545 .0424 .0451
beta_1_1     200 .0078 -     .1655 .0826 .0713 .0390
beta_2_2       5 .0045 .0163 .0232 .0137 .0082 .0237
beta_2_2      10 .0049 .0301 .0391 .0214 .0162 .0228
beta_2_2      40 .0051 .1987 .0893 .0386 .0289 .0285
beta_2_2     200 .0059 -     .2064 .0763 .0656 .0257
beta_2_5       1 .0017 .0019 .0020 .0017 .0018 .0064
beta_2_5       5 .0031 .0110 .0171 .0081 .0053 .0125
beta_2_5      10 .0033 .0234 .0257 .0145 .0107 .0144
beta_2_5      40 .0038 .3603 .0517 .0234 .0183 .0144
beta_2_5     100 .0036 .5909 .1114 .0355 .0274 .0154
beta_2_5     200 .0039 -     .2145 .0469 .0453 .0134
beta_5_1      10 .0026 .0195 .0224 .0105 .0092 .0187
beta_5_1     100 .0036 .7420 .1491 .0362 .0253 .0217
beta_1_3      10 .0035 .0262 .0303 .0175 .0120 .0173
beta_1_3     100 .0049 .6080 .1489 .0382 .0353 .0192
"""
# Method -> m -> error on Beta(2, 5).
_BETTER = {
    'rec_depth': {5: .0102, 10: .0180, 20: .0272, 100: .082, 200: .156},
    'joint': {5: .0046, 10: .0063, 20: .0086},
}


def cells() -> dict[tuple[str, str, int], float]:
  """Returns (data set, series, m) -> mean error; see `claims.series`."""
  results = {('beta_2_5', name, size): value
           for name, row in _BETTER.items() for size, value in row.items()}
  for line in _TABLE.strip().splitlines():
    dataset, size, *values = line.split()
    results |= {(dataset, name, int(size)): float(value)
              for name, value in zip(_COLUMNS, values, strict=True)
              if value != '-'}
  return results
