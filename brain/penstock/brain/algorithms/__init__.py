"""The algorithms that plan: one module each, pure functions over `penstock.brain.planning`.

Each module ends in `ALGORITHM`, the value behind its entry point in group `penstock.algorithms`.
"""
