"""Command lines. Each has worked commands in its `--help`."""
