"""Single layers, for some of which Gram matrices are faster, for some not."""

from typing import NamedTuple


class Layer(NamedTuple):
  """A convolution of an image, channels last, or a product with a sequence.

  Attributes:
    about: description of the layer.
    input_shape: shape of a record: [h, w, channels] or [t, features].
    kernel: shape [h, w, channels / groups, out] or [features, out].
    stride: stride in both directions.
    pad: number of zeros on each side.
    groups: number of groups of channels.
  """
  about: str
  input_shape: tuple[int, ...]
  kernel: tuple[int, ...]
  stride: int = 1
  pad: int = 0
  groups: int = 1


LAYERS = {
    'mnist_first': Layer('first convolution of `convnet`', (28, 28, 1),
                         (3, 3, 1, 32), pad=1),
    'mnist_second': Layer('second convolution of `convnet`', (28, 28, 32),
                          (3, 3, 32, 64), pad=1),
    'mnist_last': Layer('last convolution of `conv3`', (14, 14, 64),
                        (3, 3, 64, 64), stride=2, pad=1),
    'tutorial': Layer('second convolution of `cnn`', (13, 13, 16),
                      (4, 4, 16, 32), stride=2),
    'wrn_early': Layer('WRN-16-4, first group', (32, 32, 64), (3, 3, 64, 64),
                       pad=1),
    'wrn_middle': Layer('WRN-16-4, second group', (16, 16, 128),
                        (3, 3, 128, 128), pad=1),
    'wrn_late': Layer('WRN-16-4, third group', (8, 8, 256), (3, 3, 256, 256),
                      pad=1),
    'wrn_shortcut': Layer('WRN-16-4, last 1 x 1 shortcut', (16, 16, 128),
                          (1, 1, 128, 256), stride=2),
    'resnet_last': Layer('ResNet-18, last group, on 32 x 32', (4, 4, 512),
                         (3, 3, 512, 512), pad=1),
    'grouped': Layer('four groups of channels', (4, 4, 512),
                     (3, 3, 128, 512), pad=1, groups=4),
    'dense_short': Layer('dense on a short sequence', (16, 256), (256, 256)),
    'dense_long': Layer('dense on a long sequence', (512, 128), (128, 128)),
    'dense_wide': Layer('wide dense on a sequence', (64, 512), (512, 2048)),
    'dense_wide_long': Layer('wide dense on a longer one', (128, 512),
                             (512, 2048)),
    'tiny_layer': Layer('for smoke runs', (4, 4, 2), (3, 3, 2, 3), pad=1),
    'tiny_grouped': Layer('for tests', (5, 5, 4), (2, 2, 2, 6), stride=2,
                          groups=2),
    'tiny_dense': Layer('for tests', (3, 4), (4, 5)),
}
"""Maps a name to its layer."""
