"""The page of the docs on layers: what is equal, and what is fast.

The page holds no measured error, so it is the same on every machine.
"""

from collections.abc import Callable, Iterable, Sequence

from dpjax.grads import explain
from dpjax.report import tables
from experiments.layer_table import cases
from experiments.layer_table import comparison
from experiments.layer_table.comparison import Compared

COMMAND = 'python -m launch.layers'
TEXT = f'''# Layers of Linen, NNX and Equinox

Clipping needs the norm of the gradient of each record, and the sum of the
gradients with weights. `dpjax.grads.bookkeeping` finds both for layers of any
library from one backward pass. In the table, norms and sums of each layer alone
are compared with those of `jax.vmap(jax.grad)`:

- "equal": they agree to {comparison.TOLERANCE:g} (float32, on a CPU);
- "fast": no gradient of a record is formed, unless that is less work or the
  parameter is a bias or a scale;
- "formed": gradients of records are formed, as by `jax.vmap`, for so many of
  the parameters, for the reason given. The results are right, and cost what
  they cost with `jax.vmap`.

`dpjax.grads.explain.explain(loss, params, record)` says the same of each
parameter of your own model. Linen has no LoRA; Equinox has no cell over a
sequence, no simple cell, no product by `einsum` and no LoRA; none of the three
has EmbeddingBag or SequenceBias. These are written with what the library has.
A module of NNX is split into its parameters and the rest, and merged in the
loss with `nnx.merge(graph, params, rest, copy=True)`; without the copy JAX
itself raises a TraceContextError for modules that count random draws, such as
recurrent ones and dropout.

'''


def page(libraries: Sequence[str],
         say: Callable[[str], None] = lambda line: None) -> str:
  """Returns the page for some libraries.

  Args:
    libraries: names of `comparison.LIBRARIES`.
    say: function that gets a line about each compared layer.
  """

  def compared(library: str, layer: str) -> str:
    text = cell(comparison.compare(comparison.case(library, layer)))
    say(f'{library}, {layer}: {text}')
    return text

  rows = [(layer, about, *(compared(library, layer) for library in libraries))
          for layer, about in cases.LAYERS.items()]
  return (TEXT + tables.markdown(('layer', 'what it is', *libraries), rows)
          + f'\nMade by `{COMMAND}`.\n')


def cell(compared: Compared) -> str:
  """Returns the text on a layer of a library."""
  equal = 'equal' if compared.is_equal else 'NOT equal'
  slow = [leaf for leaf in compared.leaves if not leaf.is_fast]
  if not slow:
    return f'{equal}; fast'
  return (f'{equal}; formed: {len(slow)} of {len(compared.leaves)}, '
          f'{_reasons(slow)}')


def _reasons(leaves: Iterable[explain.Leaf]) -> str:
  """Returns the reasons of leaves, each once."""
  return '; '.join(dict.fromkeys(leaf.reason for leaf in leaves))


def cells(text: str, library: str) -> dict[str, str]:
  """Returns layer -> cell of a library in the text of a page."""
  lines = [[each.strip() for each in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')]
  column = lines[0].index(library)
  return {line[0]: line[column] for line in lines[2:]}
