"""What the papers define, claim and measure, and where it is realised."""
