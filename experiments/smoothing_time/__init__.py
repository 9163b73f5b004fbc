"""Figure 6.6.7: seconds that smoothing takes."""
