"""Whom the scheduler speaks to: the API server with actions and Events, and the Brain."""
