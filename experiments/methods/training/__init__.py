"""Training methods of the papers, and networks trained in packs."""
