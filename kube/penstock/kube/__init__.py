"""Talking to a Kubernetes API server, for the processes that watch a cluster and act on it.

Calls, watches, leader election, probes, the connection and the log of such a process. Nothing here
knows what a job is: who uses it says which kinds are read, and counts under metrics of its own.
"""
