"""The end of a uniform distribution: what is best in which model."""
