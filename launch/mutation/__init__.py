"""Plants small faults in a package and finds tests that notice them.

Modules, in import order: places, operators, drawing, worker, pool, coverage,
outcomes, table. `worker` is run as a script, by a process of its own.
"""
