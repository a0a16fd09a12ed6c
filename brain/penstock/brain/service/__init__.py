"""What can be done with jobs, samples, plans and ledgers: one service for each, no HTTP in any."""
