"""The planner's process: watches a cluster, asks the pure planner, and carries its plans out."""
