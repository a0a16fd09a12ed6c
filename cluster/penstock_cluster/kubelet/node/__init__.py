"""A node as the API server sees it, and the pods that it lost."""
