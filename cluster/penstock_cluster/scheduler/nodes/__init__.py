"""What the nodes have, and which of them a pod fits."""
