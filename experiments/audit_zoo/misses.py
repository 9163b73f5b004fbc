"""Bugs of the zoo that neither audit of dpjax finds, with the reason."""

KNOWN: dict[str, str] = {
    'central_limit_accountant':
        'The fault is clear only where no other records are sampled, and the '
        'search compares pairs by too few runs to see that; a replay judges '
        'sampled records only against an event, which this claim lacks.',
    'joint_quantiles_add_remove':
        'The fault exceeds the claim for few data sets only, with records at '
        'certain points of the grid, which the search does not reach; on the '
        'worst pair the counts refute the claim.',
}
"""Name of a bug -> why it is not found."""
