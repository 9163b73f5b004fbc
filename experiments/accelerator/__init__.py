"""A queue of the work that needs an accelerator, in leases of minutes."""
