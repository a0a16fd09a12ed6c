"""Whom a client trusts, where a Brain shows a certificate that no public authority has signed."""

from __future__ import annotations

import ssl
from pathlib import Path

from penstock.client.errors import BrainAddressError


def trusting(pem: str, where: str) -> ssl.SSLContext:
    """A context that trusts certificates in PEM and no others.

    Args:
        pem: the certificates.
        where: they are from, for the error.

    Raises:
        BrainAddressError: There is none in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks names, and knows no authority
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise BrainAddressError(
            f"{where}: no certificate in PEM that a Brain could be trusted by: {error}"
        ) from error
    return context


class TrustFile:
    """A file of certificates to trust; one that is replaced adds to what ``context`` trusts."""

    def __init__(self, path: Path) -> None:
        """Raises BrainAddressError."""
        self.path = path
        try:
            self._loaded = path.stat().st_mtime_ns
            self.context = trusting(path.read_text(), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise BrainAddressError(f"{path}: cannot be read: {error}") from error

    def refresh(self) -> None:
        """Look whether the file was replaced; one that cannot be read changes nothing."""
        try:
            now = self.path.stat().st_mtime_ns
            if now == self._loaded:
                return
            self.context.load_verify_locations(cadata=self.path.read_text())
        except (OSError, ValueError):  # of it ssl.SSLError and UnicodeDecodeError
            return
        self._loaded = now


Trust = bool | str | ssl.SSLContext | TrustFile
"""What is trusted: a file of certificates, those of the system (True), or anything (False)."""


def verified_by(trust: Trust) -> bool | str | ssl.SSLContext:
    """The same, as httpx has it."""
    return trust.context if isinstance(trust, TrustFile) else trust


def refresh(trust: Trust) -> None:
    """Take over what was replaced."""
    if isinstance(trust, TrustFile):
        trust.refresh()
