"""The bias of gradient clipping, and a method that is claimed to avoid it."""
