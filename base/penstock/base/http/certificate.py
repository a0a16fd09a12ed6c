"""The certificate that a server of ours shows, renewed while it runs.

Who renews it replaces the files, as the kubelet does with a mounted Secret; connections that come
after that are shown the new one, and those that are there stay.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from penstock.base.log_limit import LogLimit

logger = logging.getLogger(__name__)


class CertificateError(Exception):
    """The files hold no certificate with its key; names them and says what is wrong."""


class ServingCertificate:
    """A certificate with its key, in two files of PEM; ``context`` is for listeners."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises CertificateError."""
        self._files = certificate, key
        self._limit = LogLimit()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded = self._stamp()
        self._load()

    def _stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from error

    def _load(self) -> None:
        certificate, key = self._files
        try:
            self.context.load_cert_chain(certificate, key, password=_refuse)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"{certificate} and {key}: no certificate in PEM with its key, unencrypted: {error}"
            ) from error

    def refresh(self) -> None:
        """Take over files that were replaced; the old ones stay where those cannot be used."""
        try:
            stamp = self._stamp()
            if stamp == self._loaded:
                return
            # A pair that was caught between two writes is tried first: a context keeps half of it.
            ServingCertificate(*self._files)
            self._load()
        except CertificateError as error:
            self._limit.log(
                logger,
                logging.ERROR,
                "the certificate is not renewed, the old one stays: %s",
                error,
            )
            return
        self._loaded = stamp
        logger.info("the certificate was renewed: %s", self._files[0])


def _refuse() -> bytes:
    """Nobody is asked for a password."""
    raise ValueError("the key is encrypted")
