"""One model of where a training job's time goes, and of what would change it.

The training's runtime, the Brain, the scheduler and the simulators share it, so it is pure: the
standard library alone, no clock, no file, no process (ADR 0022).
"""
