"""The cluster as the planner sees it, and what the planner may decide about it."""
