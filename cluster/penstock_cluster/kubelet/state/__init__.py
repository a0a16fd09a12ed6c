"""What is remembered of a pod: its status, its back-off, its folder."""
