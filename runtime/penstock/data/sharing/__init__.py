"""What jobs that read the same data share: batches are made once, and everybody takes each."""
