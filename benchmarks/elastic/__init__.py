"""Benchmarks of elastic training with real processes: rescaling, stragglers, chaos."""
