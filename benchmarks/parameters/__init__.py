"""Parameter servers, ours and others, doing the same exchange."""
