"""Learning a distribution on finitely many values from noisy counts."""
