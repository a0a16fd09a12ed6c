"""What may be written: rights, quotas of a pod, policies and their expressions."""
