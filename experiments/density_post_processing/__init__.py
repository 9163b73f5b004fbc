"""What post-processing takes off the errors of private histograms."""
