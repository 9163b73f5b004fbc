"""Tables, figures and files of results.

No module here imports JAX, and `plots` imports matplotlib only inside its
functions, so results can be read on any machine.
"""
