"""Hyperparameters of the settings of `sweep.py`.

Those of the profile 'cpu' were chosen by hand on one validation fold of the
training part of MNIST, at epsilon 2 with one seed; on CIFAR-10, where not even
sgd was stable with them, the range of pixels and the learning rate at epsilon
4. From there `choosing` tries nine candidates for each method and data set, on
a validation fold of its own training part. The choice is not charged to epsilon
(erratum E30). The Lipschitz methods need Adam: the bound of the first layer is
the product of all later norms, so its noise is ten times that of the last
layer, and with one learning rate for both the first layer drifts.

Those of 'features' were chosen on one validation fold of Fashion-MNIST, for sgd
among learning rates of 8, 64, 256 and 1,024. They are the same for both private
methods: in a linear model on records of norm 1, a bound of cotangents is one of
gradients.

Those of 'full' are not tuned. dp_sgd on CIFAR-10 follows the values that De et
al. (2022) publish for their WRN-16-4; the other methods use its batch size and
number of steps. 'de_et_al' has their numbers of steps, too.
"""

from collections.abc import Mapping
import functools
import math
import pathlib
from typing import Any

from experiments import fold_choices
from experiments.lip_images import sweep

CHOSEN = pathlib.Path(__file__).parent / 'results' / 'chosen.json'
"""Written by `choosing`: data set -> method -> the chosen fields and scores."""

MODELS: Mapping[str, Mapping[str, Any]] = {
    # Catalogue item NET-10: 1,625,866 parameters on MNIST.
    'convnet': dict(model='convnet'),
    # Images of 14 x 14 pixels with 3 x 3 kernels at stride 2: a pixel is in a
    # quarter as many windows as at stride 1. Without biases, no bound counts
    # the sites of a bias.
    'small_convnet': dict(
        model='convnet', channels=(16,), stride=2, pool='none',
        use_bias=False, width=32, downsample=2, pixels='unsigned'),
    # A linear model.
    'scattering': dict(features='scattering', depth=0),
    'wrn_16_4': dict(model='wide_resnet', depth=16, width=4, num_groups=16),
    'wrn_40_4': dict(model='wide_resnet', depth=40, width=4, num_groups=16),
}

_RADII = {'mnist': 5.0, 'fashion_mnist': 7.0, 'cifar10': 14.0, 'digits': 2.0}
_SMALL = dict(num_steps=250, batch_size=2048.0, activation='relu',
              optimizer='adam', learning_rate=0.03)
_BALLS = dict(learning_rate=0.02, weight_norm=8.0, hidden_radius=6.0,
              temperature=0.5)
_OF_METHOD: Mapping[str, Mapping[str, Any]] = {
    'sgd': {},
    'dp_sgd': {},
    'layer_clipped': {},
    'tempered_sigmoid': dict(activation='tanh'),
    'lip_dp_sgd': _BALLS,
    'lip_normalised': _BALLS,
    'lip_norm': dict(_BALLS, num_groups=4),
    'lip_propagated': _BALLS,
}
# CIFAR-10 images have three channels and few dark pixels. Centring the pixels
# keeps more of the image within the same ball, and half the learning rate
# suffices.
_CIFAR10 = dict(pixels='signed', learning_rate=0.01)
_CIFAR10_OF_METHOD: Mapping[str, Mapping[str, Any]] = {
    'lip_propagated': dict(learning_rate=0.005),
}

_FULL = dict(num_steps=1000, batch_size=4096.0, max_batch_size=512,
             microbatch_size=64, average='ema', optimizer='adam',
             learning_rate=0.01, pixels='unsigned')
_FULL_RADII = {'mnist': 10.0, 'fashion_mnist': 14.0, 'cifar10': 30.0}
# Memory holds the activations of 16 views of 64 records at once.
_WIDE = dict(views=16, max_batch_size=64, microbatch_size=16)
_DE_ET_AL = dict(weights='standardised', residual='plain', optimizer='sgd',
                 schedule='constant', learning_rate=2.0, clip_norm=1.0)
# Pixels of both signs, as theirs. Memory holds 64 records of 16 views.
_DE_ET_AL_ALL = _DE_ET_AL | dict(
    batch_size=4096.0, max_batch_size=64, views=16, average='ema',
    pixels='signed')
_FULL_OF_METHOD: Mapping[str, Mapping[str, Any]] = {
    'sgd': dict(residual='plain'),
    'dp_sgd': _DE_ET_AL,
    'tempered_sigmoid': dict(activation='tanh', clip_norm=0.1),
    'lip_dp_sgd': dict(_BALLS, weight_norm=2.0),
    'lip_normalised': dict(_BALLS, weight_norm=2.0),
    'lip_norm': dict(_BALLS, weight_norm=2.0),
    'lip_propagated': dict(_BALLS, weight_norm=2.0, bias_norm=0.1),
}


_FEATURES = dict(num_steps=250, batch_size=4096.0, optimizer='momentum',
                 learning_rate=32.0, clip_norm=0.5, logit_clip=0.5)


def fields(setting: sweep.Setting, *,
           chosen: fold_choices.Choices | None = None) -> dict[str, Any]:
  """Returns the fields of the `TrainingConfig` of a setting that trains.

  Args:
    setting: any setting but a count.
    chosen: what `choosing` found; None for the committed file.
  """
  full = setting.profile == 'full'
  values = dict(
      dataset=setting.dataset, seed=setting.seed, delta=sweep.DELTA,
      epsilon=setting.epsilon if math.isfinite(setting.epsilon) else 1.0,
      method=setting.method)
  if setting.method == 'tempered_sigmoid':
    values['method'] = 'dp_sgd' if full else 'layer_clipped'
  if full:
    values |= _FULL | dict(input_radius=_FULL_RADII[setting.dataset])
    values |= _FULL_OF_METHOD[setting.method] | _of_full_model(setting)
  elif setting.profile == 'de_et_al':
    values |= _DE_ET_AL_ALL | dict(
        num_steps=sweep.DE_ET_AL_STEPS[setting.epsilon])
  elif setting.profile == 'features':
    values |= _FEATURES
    if setting.method == 'sgd':
      values['learning_rate'] = 64.0
  else:
    values |= _SMALL | dict(input_radius=_RADII[setting.dataset])
    values |= _OF_METHOD[setting.method]
  if setting.profile == 'smoke':
    values |= dict(num_steps=24, batch_size=64.0)
  values |= MODELS[setting.model]
  if setting.dataset == 'cifar10' and setting.profile == 'cpu':
    values |= _CIFAR10 | _CIFAR10_OF_METHOD.get(setting.method, {})
  if setting.profile == 'cpu':
    choices = _committed() if chosen is None else chosen
    values |= fold_choices.fields(choices, setting.dataset, setting.method)
  return values


@functools.cache
def _committed() -> fold_choices.Choices:
  """Returns the committed choices; nothing before the first was made."""
  return fold_choices.read(CHOSEN)


def _of_full_model(setting: sweep.Setting) -> dict[str, Any]:
  """Returns options for the large networks, and for their Lipschitz bounds."""
  if setting.model == 'convnet':
    return {}
  values = dict(_WIDE)
  if setting.model == 'wrn_40_4':
    values['batch_size'] = 16384.0
  if setting.method in sweep.LIPSCHITZ:
    # Bounds are products over all blocks, so a norm above 1 would make them
    # grow exponentially with depth.
    values['weight_norm'] = 1.0
  return values
