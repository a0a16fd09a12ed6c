"""Stateless functions that a program declared, called by who makes its batches (`offload`)."""
