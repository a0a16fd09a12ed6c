"""Addresses and names of pods, and who is kept from whom."""
