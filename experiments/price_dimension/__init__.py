"""The cost of privacy for the mean of a normal vector, by dimension."""
