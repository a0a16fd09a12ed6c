"""The HTTP endpoints, one module for each domain: they convert, ask for access, call a service."""
