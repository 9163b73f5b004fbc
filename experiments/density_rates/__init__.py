"""Measures how density errors fall with n, budget and smoothness."""
