"""Figure 6.6.3: inverses of private distribution functions."""
