"""How well neighbours of one data set are told apart by smoothed medians."""
