"""The parts of `benchmarks.partition`: each gives figures and the goals that they have to reach."""
