"""Command-line programs; the `--help` of each shows example commands."""
