"""Data workers that take batches from data workers, and run the stages after theirs."""
