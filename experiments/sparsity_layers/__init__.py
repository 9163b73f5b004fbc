"""How many parameters butterfly networks have, and where."""
