"""The controller: makes a cluster's pods what its ElasticJobs and their Scales say.

`penstock.controller.reconcile` decides and does nothing; the rest of the package observes the
cluster, calls it and carries out what it decided.
"""
