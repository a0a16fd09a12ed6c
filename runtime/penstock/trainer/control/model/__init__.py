"""What the decisions are made from: agents, members, leases, progress, as one state."""
