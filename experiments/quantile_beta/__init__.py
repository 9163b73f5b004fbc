"""Figure 6.1: errors of m quantiles of beta distributions, against m."""
