"""What epsilon Algorithm 8 of Barczewski (2025) really has, as printed."""
