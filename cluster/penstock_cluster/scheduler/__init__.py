"""A stand-in for kube-scheduler: binds pods of the embedded cluster to nodes.

:mod:`fit` decides whether a pod may run on a node and why not, :mod:`score` which node is best,
:mod:`inventory` keeps what every node has left, :mod:`preemption` whom to remove; these are pure.
:mod:`binder` observes the cluster, asks them, and writes bindings.
"""
