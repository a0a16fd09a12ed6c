"""Allocation: which job gets the next data worker? One policy per file (pure)."""
