"""Draws examples of private density estimates."""
