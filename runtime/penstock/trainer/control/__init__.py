"""What a trainer decides for a job's workers: pure, told what happens and what time it is."""
