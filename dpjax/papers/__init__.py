"""Methods as papers print them, kept to reproduce their claims, not for use.

Modules, in import order: output_perturbation, newton, fixed_point,
printed_lip_dp_sgd.
"""

__all__ = [
    'fixed_point', 'newton', 'output_perturbation', 'printed_lip_dp_sgd'
]
