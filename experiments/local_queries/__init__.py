"""Statistical queries answered by people who trust nobody."""
