"""What samples say of a job: sums, statistics and the fitted model of its speed; pure."""
