"""Lower bounds on the error of any private density estimate.

Modules, in import order: packings, lower_bounds, cube_bounds.
"""
