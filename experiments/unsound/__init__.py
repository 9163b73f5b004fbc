"""What epsilon Algorithm 8 of thesis 003 really has, as printed."""
