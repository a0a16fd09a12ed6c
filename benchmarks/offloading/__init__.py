"""What `benchmarks.offload` consists of."""
