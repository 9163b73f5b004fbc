"""Coverage and width of private intervals for a normal mean."""
