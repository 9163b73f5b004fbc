"""The networks of `--suite=models` as plain data: names, sizes and limits."""

from typing import NamedTuple


class Described(NamedTuple):
  """A network of the suite.

  Attributes:
    about: description of the network.
    size: batch size that is measured by default.
    time: largest time of a private step, over the plain step; None for no
      limit.
    memory: largest scratch memory, over that of the plain step.
    flops: largest number of operations, over that of the plain step.
    accelerator: whether the limits hold on accelerators only.
  """
  about: str
  size: int
  time: float | None = None
  memory: float | None = None
  flops: float | None = None
  accelerator: bool = False


TINY = 'tiny_'
COMPILE = 1.6
"""Largest time of tracing and compiling, over that of the plain step."""

OVER_VMAP = 1.05
"""Largest time of a private step, over clipping by `jax.vmap`."""

NETWORKS = {
    'mlp': Described('MLP 784-512-256-10, ReLU', 64, 1.05),
    'cnn': Described('tanh and max-pool net of the MNIST tutorials', 64, 1.2),
    'gpt': Described('transformer, untied', 16, 1.3, 1.25),
    'gpt_remat': Described('the same, each block in `jax.checkpoint`', 16, 1.3,
                           1.25),
    'gpt_attention': Described(
        'the same, with `jax.nn.dot_product_attention`', 16, 1.3, 1.25),
    'gpt_lora': Described('adapters x A B beside a frozen transformer', 16,
                          1.1),
    'gpt_tied_256': Described('tied embedding of 256 tokens', 16, 1.3, 1.25),
    'gpt_tied_4096': Described('tied embedding of 4,096 tokens', 16, 1.3, 1.25),
    'gpt_scan': Described('four blocks by `jax.lax.scan`', 16, 1.3, 1.25),
    'gpt_scan_remat': Described('the same, with `jax.checkpoint`', 16, 1.3,
                                1.25),
    'gpt_nn_scan': Described('four blocks of Linen by `nn.scan`', 16, 1.3,
                             1.25),
    'gpt_scan_remat_12': Described('twelve blocks, scan and `jax.checkpoint`',
                                   16, 1.3, 1.5, 1.2),
    'gpt_lora_merged': Described('adapters merged into W + A B', 16, 1.1),
    'weight_standard': Described(
        'three 3 x 3 convolutions with standardised weights', 32),
    'vit': Described('vision transformer with a class token', 16, 1.3, 1.25),
    'bias_rows': Described('MLP 784-512-256-10, biases concatenated to the '
                           'matrices', 64),
    'mixture': Described('mixture of four experts by dense `einsum`', 16, 1.3,
                         1.25),
    'unet': Described('U-Net of two levels, group normalisation', 16, 1.4, 1.5),
    'lstm': Described('LSTM of 128 units over 64 steps', 32, 1.5),
    'gru': Described('GRU of 128 units over 64 steps', 32),
    'nnx_dropout': Described('MLP 784-512-256-10 of NNX with dropout', 64),
    'gpt2_124m': Described(
        'GPT-2 of 124 million parameters, 1,024 tokens, tied embedding, each '
        'block in `jax.checkpoint`', 8, 1.3, 1.25, accelerator=True),
    'gpt2_124m_scan': Described('the same, blocks by `jax.lax.scan`', 8, 1.3,
                                1.25, accelerator=True),
}
"""Maps a name to its network; each has a tiny form, `tiny_` and its name."""

LARGE = tuple(name for name, each in NETWORKS.items() if each.accelerator)
"""Networks for accelerators only."""


def find(name: str) -> Described | None:
  """Returns a network by its name or that of its tiny form, or None."""
  return NETWORKS.get(name.removeprefix(TINY))
