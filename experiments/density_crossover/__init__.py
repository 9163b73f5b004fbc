"""Finds where privacy costs density estimates more than sampling does."""
