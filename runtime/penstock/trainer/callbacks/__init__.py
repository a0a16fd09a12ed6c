"""Snapshots for training loops that others have written: Hugging Face's Trainer and Lightning's."""
