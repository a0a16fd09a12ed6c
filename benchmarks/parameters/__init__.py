"""What the benchmarks of parameter servers have in common.

exchange.py, ours.py, gloo.py, rpc.py   the same exchange by ours and by others
orders.py      real servers under a trainer that a program speaks for
quotas.py      a job as plain processes, whose CPU is limited from one moment to the next
jobs.py        ElasticJobs with servers; watched.py follows one, steplogs.py reads what workers did
loopplot.py    the picture of `benchmarks.ps_loop`
clicks.py      the click-log example, with plain PyTorch beside it
"""
