"""Where data workers run and who gets them: snapshot, fragmentation, placement, allocation, tuning.

All of it is pure (no client library, no clock, seeded generators as arguments) but for
`penstock.scheduler.service`, the process that watches a cluster and carries the plans out.
"""
