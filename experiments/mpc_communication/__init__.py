"""Figure 6.6.6: bits sent to evaluate a distribution function together."""
