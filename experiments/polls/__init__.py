"""Polls whose answers are random: intervals, and what is given away."""
