"""The few calls of the Kubernetes API that the SDK and the command line make."""
