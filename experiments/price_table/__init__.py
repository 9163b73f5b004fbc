"""Table 1 of Barber and Duchi (2014): rates of private means, measured."""
