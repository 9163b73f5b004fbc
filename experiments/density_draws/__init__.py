"""Private densities as they look."""
