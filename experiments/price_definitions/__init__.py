"""What hides in an output: tests, posteriors and events, after the fact."""
