"""Placement: on which node does a request go? One engine, one policy per file (pure)."""
