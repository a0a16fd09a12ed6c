"""What a trainer and the Brain tell each other: samples, plans, copies of the ledger."""
