"""What many private releases cost together, by every bound there is."""
