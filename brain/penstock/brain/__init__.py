"""The Brain: keeps every job's history and turns it into plans, through plugin algorithms.

Algorithms and what decides when to ask them are pure; services carry out and store. The REST API
over them is `penstock.api`; nothing in here knows HTTP.
"""
