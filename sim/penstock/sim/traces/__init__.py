"""Readers of public traces, one module each, and a generator for when there are none."""
