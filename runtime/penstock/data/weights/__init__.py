"""Large tensors of declared functions: named by their bytes, and once on each node."""
