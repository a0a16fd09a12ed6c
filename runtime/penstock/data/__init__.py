"""The data plane of a job: who processes which samples (`penstock.data.ledger`), and their way."""
