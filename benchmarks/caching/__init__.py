"""Runs of `benchmarks.cache`: shares, jobs, nodes, programs."""
