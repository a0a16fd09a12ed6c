"""A week of a cluster: the same jobs and faults with static requests and with Penstock."""
