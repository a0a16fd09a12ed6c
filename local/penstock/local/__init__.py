"""A whole control plane on one machine: the embedded cluster, and ``penstock up`` and ``demo``.

The other rooms are started as processes, through their commands, and never imported.
"""
