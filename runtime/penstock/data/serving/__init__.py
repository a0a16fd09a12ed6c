"""The other end: a data worker, which makes the batches that it is asked for."""
