"""Computes bits of the settings in `sweep.py`, and counts some of them."""

from collections.abc import Iterator, Sequence

import numpy as np

from dpjax.mpc import additive
from dpjax.mpc import comparison
from dpjax.mpc import costs
from dpjax.mpc import nodes
from dpjax.mpc import prg
from dpjax.mpc import scheme as schemes
from dpjax.mpc.schemes import AdditiveScheme
from dpjax.mpc.schemes import ComparisonScheme
from dpjax.mpc.schemes import OuterProductScheme
from experiments import records
from experiments import rows
from experiments.methods.mechanisms import protocol_costs
from experiments.methods.mechanisms import secure_curves as evaluation
from experiments.mpc_communication import sweep

_CLASSES = 2


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} '
             f'm={setting.num_servers} |B|={setting.num_points}')
    collecting, answering = bits(setting)
    metrics = dict(bits=collecting + answering,
                 owner_bits=collecting / setting.num_owners,
                 answer_bits=answering, key_bits=comparison.key_bits(
                     _depth(setting), setting.value_bits))
    if setting.figure == 'counted':
      metrics['counted'] = counted(setting)
    yield setting, rows.exact(setting, metrics)


def _depth(setting: sweep.Setting) -> int:
  return (setting.num_thresholds - 1).bit_length()


def scheme_of(setting: sweep.Setting) -> schemes.Scheme:
  """Returns the scheme of a one-message method; keys are for two servers."""
  public = dict(num_thresholds=setting.num_thresholds, num_classes=_CLASSES)
  if setting.method == 'outer_product':
    return OuterProductScheme(num_servers=setting.num_servers, **public)
  public |= dict(value_bits=setting.value_bits)
  if setting.method == 'additive':
    return AdditiveScheme(num_servers=setting.num_servers, **public)
  return ComparisonScheme(**public)


def bits(setting: sweep.Setting) -> tuple[int, int]:
  """Returns the bits that owners send, and the bits of the answers."""
  owners, points = setting.num_owners, setting.num_points
  servers, width = setting.num_servers, setting.value_bits
  numbers = dict(num_servers=servers, bits=width)
  if setting.method in ('shares', 'masked'):
    return protocol_costs.pointwise(
        owners, _CLASSES * points, **numbers,
        masked=setting.method == 'masked'), 0
  if setting.method == 'one_shot':
    return protocol_costs.one_shot(owners, _CLASSES * points, **numbers), 0
  scheme = scheme_of(setting)
  if not setting.method.startswith('fss'):
    return (costs.collecting(scheme, owners),
            costs.answering(scheme, points))
  message = scheme.bits(0)
  if setting.method == 'fss_2016':
    depth = _depth(setting)
    message += _CLASSES * (protocol_costs.earlier_key_bits(depth, width)
                           - comparison.key_bits(depth, width))
  # Cost for m servers, also where no such keys exist.
  share = servers / scheme.num_servers
  return owners * servers * message, round(
      share * costs.answering(scheme, points))


def counted(setting: sweep.Setting) -> int:
  """Returns the same bits, counted on actual messages."""
  rng = np.random.default_rng(setting.seed)
  bins = rng.integers(0, setting.num_thresholds, setting.num_owners)
  labels = rng.integers(0, _CLASSES, setting.num_owners)
  points = rng.choice(setting.num_thresholds, setting.num_points, False)
  # The sizes of messages do not depend on the values in them.
  source = prg.Stream(bytes(32))
  if setting.method in ('fss', 'additive', 'outer_product'):
    sizes = nodes.dyadic_sizes(setting.num_thresholds, root=True)
    curve = evaluation.collect(
        scheme_of(setting), bins, np.zeros((_CLASSES, sum(sizes)), np.int64),
        num_rows=setting.num_thresholds, source=source, labels=labels)
    return curve.bits + curve.ask(points).bits
  indicators = (bins[:, None] <= points) & (
      labels == np.arange(_CLASSES)[:, None])[..., None]
  values = np.concatenate(indicators.astype(np.int64), 1)
  if setting.method == 'one_shot':
    seeds, rest = additive.share_by_seeds(
        values.astype(np.uint64), num_parties=setting.num_servers,
        value_bits=setting.value_bits, source=source)
    return (sum(part.size for part in seeds) * 64
            + rest.size * setting.value_bits)
  backend = (evaluation.TrustedCurator(bits=setting.value_bits)
             if setting.method == 'masked' else evaluation.AdditiveShares(
                 num_servers=setting.num_servers, bits=setting.value_bits))
  noise = backend.share(np.zeros(1, np.int64), source)
  ask = evaluation.UStat(backend=backend, noise=noise, source=source)
  return ask.totals(values, [[0]] * values.shape[1]).bits
