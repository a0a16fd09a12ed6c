"""The command line of Penstock."""
