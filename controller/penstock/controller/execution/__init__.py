"""Carrying out what was decided: the only place from which the controller writes to a cluster."""
