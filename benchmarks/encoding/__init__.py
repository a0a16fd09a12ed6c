"""Frozen encoders in the training step, and in a data worker of their own."""
