"""Datasets that are iterated instead of indexed: streams, hosted by whoever makes their batches."""
