"""Carrying out what was decided: all writes of the controller but that of a fault of its own."""
