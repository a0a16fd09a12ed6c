"""Pinned memory that local workers write to themselves."""
