"""Four attributes: tables of pairs along a tree against tables of all cells."""
