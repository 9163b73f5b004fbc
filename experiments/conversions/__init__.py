"""From one definition of privacy to another, and what it costs."""
