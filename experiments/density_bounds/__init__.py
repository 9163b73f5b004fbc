"""What no private density can beat, beside what the best ones reach."""
