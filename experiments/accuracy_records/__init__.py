"""Records of private accuracy without extra data: chosen, tested, audited."""
