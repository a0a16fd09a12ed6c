"""A Kubernetes cluster for tests and laptops in one process: API server, scheduler and kubelet.

:class:`~penstock_cluster.cluster.EmbeddedCluster` puts the parts together, and
:mod:`penstock_cluster.testing` runs them beside a test. This package exports nothing, because the
small process that starts the containers imports it too.
"""
