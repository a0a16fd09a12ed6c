"""Samples that data workers begin and the program ends: cuts between the stages of a sample."""
