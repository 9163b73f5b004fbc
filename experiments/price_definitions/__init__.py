"""What a private output hides: tests, posteriors and events."""
