"""Figure 6.1: errors of quantiles of beta laws against how many there are."""
