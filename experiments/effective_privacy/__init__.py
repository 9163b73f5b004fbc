"""How well smoothed medians distinguish neighbours of one data set."""
