"""Builds the networks of `--suite=models` by name."""

from experiments.benchmarks import network_names
from experiments.benchmarks import networks_flax
from experiments.benchmarks import networks_images
from experiments.benchmarks import networks_recurrent
from experiments.benchmarks import networks_transformers
from experiments.benchmarks.networks_base import Parts

BUILDERS = (networks_transformers.BUILDERS | networks_flax.BUILDERS
            | networks_images.BUILDERS | networks_recurrent.BUILDERS)
"""Maps a name of `network_names` to the function that builds the network."""


def build(name: str) -> Parts:
  """Returns the parts of a network, of its tiny form if the name says so."""
  tiny = name.startswith(network_names.TINY)
  return BUILDERS[name.removeprefix(network_names.TINY)](tiny)
