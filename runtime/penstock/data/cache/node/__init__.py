"""The daemon that holds a node's cache: memory, decisions, connections."""
