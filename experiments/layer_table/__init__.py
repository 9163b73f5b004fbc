"""Which layers of Linen, NNX and Equinox book-keeping treats fast.

`launch.layers` compares the clipped sums of each layer with those of
`jax.vmap(jax.grad)` and writes the table of the docs.

  cases                         what a layer of any library is for an engine
  linen_layers, nnx_layers, equinox_layers
                                the layers in each library
  comparison                    errors of norms and sums, and the ways to them
  table                         the page of the docs
"""
