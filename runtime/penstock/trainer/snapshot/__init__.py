"""Snapshots of a training's state in memory that outlives the training process."""
