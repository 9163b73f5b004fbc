"""Figure 1.1 of thesis 000 and its claims, from rows."""
