"""Lower bounds for private densities, and the errors of the best ones."""
