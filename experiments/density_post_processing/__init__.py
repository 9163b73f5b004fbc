"""The gain by post-processing of private histograms."""
