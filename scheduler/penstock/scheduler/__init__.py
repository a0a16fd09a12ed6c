"""Where data workers run and who gets them: snapshot, fragmentation, placement, allocation, tuning.

All of it is pure: no client library, no clock, seeded generators as arguments.
"""
