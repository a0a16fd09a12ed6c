"""A certificate authority, and what it signs.

It is made anew for every run, or kept with the secrets of a cluster that has a database: clients
trust it for as long as they run, and would not know the server of one that was started again.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=365)
_AUTHORITYS_LIFETIME = timedelta(days=3650)
_PEM = serialization.Encoding.PEM
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write_secret(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(_PEM, *form)


def _read(secret: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None:
    """Key and certificate; None: it would not outlast what is signed now."""
    certificate = x509.load_pem_x509_certificate(secret.encode())
    key = serialization.load_pem_private_key(secret.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the certificate authority's key is of another kind")
    lasts = certificate.not_valid_after_utc >= datetime.now(UTC) + _LIFETIME
    return (key, certificate) if lasts else None


class Authority:
    """It signs what the server shows, and what clients do.

    As in clusters made by kubeadm: one for both. Nobody has its key but this process, and the
    database that keeps it.
    """

    def __init__(self, secret: str | None = None) -> None:
        """The one whose `secret` this is; a new one where it would not outlast what it signs.

        Raises:
            ValueError: it is damaged.
        """
        self._subject = _name("penstock-local-ca")
        self._began = datetime.now(UTC) - timedelta(minutes=5)
        kept = None if secret is None else _read(secret)
        self._key = ec.generate_private_key(ec.SECP256R1()) if kept is None else kept[0]
        certificate = self._signed_by_itself() if kept is None else kept[1]
        self.pem = certificate.public_bytes(_PEM)

    @property
    def secret(self) -> str:
        """Certificate and key, as PEM."""
        return (self.pem + _private_pem(self._key)).decode()

    def _signed_by_itself(self) -> x509.Certificate:
        public = self._key.public_key()
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            self._begin(self._subject, public, datetime.now(UTC) + _AUTHORITYS_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def write_serving(self, folder: Path, host: str) -> None:
        """Write ``server.pem`` and ``server.key``, and the authority's ``ca.pem``, to a folder."""
        addresses = {ipaddress.ip_address(host), ipaddress.ip_address("127.0.0.1")}
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
        names.extend(x509.IPAddress(address) for address in sorted(addresses, key=str))
        subject = _name("penstock-local")
        alternatives = x509.SubjectAlternativeName(names)
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        certificate, key = self._sign(subject, usage, datetime.now(UTC) + _LIFETIME, alternatives)
        (folder / "server.pem").write_bytes(certificate + self.pem)
        (folder / "ca.pem").write_bytes(self.pem)
        _write_secret(folder / "server.key", key)

    def client(
        self, user: str, groups: Sequence[str] = (), lifetime: timedelta = _LIFETIME
    ) -> tuple[bytes, bytes]:
        """A certificate and its key, as PEM, by which a client is a user in groups."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._sign(subject, ExtendedKeyUsageOID.CLIENT_AUTH, datetime.now(UTC) + lifetime)

    def _sign(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        until: datetime,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._begin(subject, key.public_key(), until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(authority, critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(_PEM), _private_pem(key)

    def _begin(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(self._began, until - timedelta(seconds=1)))
            .not_valid_after(until)
        )
