"""Simulated clusters: placement, detached CPU, and training with elastic data workers."""
