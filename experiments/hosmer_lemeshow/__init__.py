"""Figure 6.6.5: errors of private Hosmer-Lemeshow statistics."""
