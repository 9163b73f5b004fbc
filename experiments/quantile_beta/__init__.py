"""Figure 6.1: errors of quantiles of beta distributions against their number."""
