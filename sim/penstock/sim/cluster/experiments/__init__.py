"""Published experiments on a cluster, each a module: what it runs and what it compares."""
