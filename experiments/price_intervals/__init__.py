"""Private intervals of a normal mean: how often they hold it, how wide."""
