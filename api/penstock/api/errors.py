"""Why the service cannot start."""


class ServerError(Exception):
    """The service cannot start; the text says why and what to do."""
