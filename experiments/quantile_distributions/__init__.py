"""Figure 6.3: histograms of the distributions of the figures about atoms."""
