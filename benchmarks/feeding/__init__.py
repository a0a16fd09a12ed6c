"""What `benchmarks.feed` runs: input pipelines, a training program, and the watching of it."""
