"""Ways to draw batches and noise, for Lip-DP-SGD and for DP-SGD."""
