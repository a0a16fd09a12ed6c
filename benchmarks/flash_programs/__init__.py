"""What `benchmarks.flash` runs, in a process each: a training that saves, and one that begins."""
