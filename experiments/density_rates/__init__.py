"""How errors of densities fall with records, budget and smoothness."""
