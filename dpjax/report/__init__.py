"""Rows, tables and figures of results: everything here is made from rows.

No module here imports JAX, and `plots` imports matplotlib inside its
functions only, so that results can be read on any machine.
"""
