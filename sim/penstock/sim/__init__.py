"""Simulators that run the scheduler's and the Brain's own code on traces and modelled jobs."""
