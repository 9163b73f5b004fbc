"""Errors of private histograms of Lipschitz densities."""
