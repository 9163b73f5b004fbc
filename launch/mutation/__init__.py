"""Mutation testing: plants small faults and looks for tests that fail.

Modules, in import order: places, operators, drawing, worker, pool, coverage,
outcomes, table. `worker` runs as a script in its own process.
"""
