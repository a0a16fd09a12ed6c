"""The rate that each resource allows."""
