"""What a week is made of, whoever decides: assumptions, jobs, services, machines, training."""
