"""The planner's decisions: which gated pod goes where, who makes room, who gets a worker (pure)."""
