"""How near a job comes to its limits, and what holds it up meanwhile."""
