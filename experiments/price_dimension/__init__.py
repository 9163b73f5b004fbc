"""What privacy costs the mean of a normal vector, by its dimension."""
