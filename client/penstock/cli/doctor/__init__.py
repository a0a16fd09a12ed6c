"""``penstock doctor``: what is wrong with a cluster's Penstock, and the cure."""
