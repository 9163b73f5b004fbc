"""Accuracy and noise against epsilon, the number of records and depth."""
