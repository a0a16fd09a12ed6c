"""What an address must be, so that a wrong one is refused where it was written and not tried."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit


def address(given: Any) -> str:
    """The URL without a slash at its end.

    Raises:
        ValueError: It is none; a password is never quoted.
    """
    text = str(given or "").rstrip("/")
    rule = "an address http[s]://HOST[:PORT] expected"
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError as error:  # a port that is none, a name that no host can have
        raise ValueError(rule) from error
    if "@" in parts.netloc:
        raise ValueError(f"{rule}; a user and a password do not belong into it")
    text_is_one = text.isprintable() and not any(each.isspace() for each in text)
    if parts.scheme not in ("http", "https") or not host or port == 0 or not text_is_one:
        raise ValueError(f"{rule}, got {text!r}")
    return text
