"""Figure 6.3: histograms of the laws of the figures about atoms."""
