"""The bias of gradient clipping, and what is claimed to avoid it."""
