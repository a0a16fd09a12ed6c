"""Offloading rules on random systems: how far each stays behind the best ratio."""
