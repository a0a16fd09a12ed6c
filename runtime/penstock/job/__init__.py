"""What the processes of one job share, whatever they do: trainer, agents, sessions, servers.

    protocol.py      what they say to the job's trainer
    identities.py    replica, rank, member, consumer: who is who
    settings.py      what they read from their environment
    atomic_file.py   files that are there as a whole or detectably damaged

It stands below `penstock.trainer` and `penstock.parameter_server`, and imports neither.
"""
