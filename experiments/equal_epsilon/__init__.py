"""Methods that claim gains at equal epsilon, tuned alike and compared."""
