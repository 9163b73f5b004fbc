"""Result rows, and the tables and figures that are made from them.

No module here imports JAX, and `plots` imports matplotlib only inside its
functions, so results can be read on any machine.
"""
