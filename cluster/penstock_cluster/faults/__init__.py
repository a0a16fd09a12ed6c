"""Faults on demand: what goes wrong in a real cluster, when a test says so.

``cluster.faults`` in process, ``POST /faults/NAME`` with a JSON body from elsewhere (administrators
only; ``GET /faults`` lists them), :class:`client.FaultsClient` for the latter. :mod:`catalogue` has
one documented function per fault; :mod:`interception` carries out those of the API server.
"""
