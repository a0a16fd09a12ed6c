"""What a container stands on: processes, mounts, volumes, variables, cores."""
