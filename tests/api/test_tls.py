"""The Brain over TLS: files that cannot be used, a certificate that is renewed, a port without."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.http.certificate import CertificateError, ServingCertificate
from penstock.client import BrainAddressError, BrainClient, BrainUnavailableError, RetryPolicy
from penstock.client.trust import TrustFile
from penstock_cluster.apiserver.certificates import Authority
from tests.api.test_command import running
from tests.patience import patient

ONCE = RetryPolicy(total_seconds=0.5, attempt_seconds=5)


@pytest.fixture
def served(tmp_path: Path) -> tuple[Path, Path]:
    """Certificate and key; ``ca.pem`` is beside them."""
    Authority().write_serving(tmp_path, "127.0.0.1")
    return tmp_path / "server.pem", tmp_path / "server.key"


def options(served: tuple[Path, Path], *more: str) -> tuple[str, ...]:
    certificate, key = served
    return ("--auth=none", f"--tls-certificate={certificate}", f"--tls-key={key}", *more)


def ready(url: str, authority: Path | None = None) -> int:
    """The status of its health, asked by a client that trusts this authority alone."""
    scheme, _, place = url.partition("://")
    line = http.client.HTTPConnection(place, timeout=10)
    if scheme == "https":
        context = ssl.create_default_context(cafile=str(authority))
        line = http.client.HTTPSConnection(place, timeout=10, context=context)
    try:
        line.request("GET", "/readyz")
        return line.getresponse().status
    finally:
        line.close()


def test_who_trusts_its_authority_reaches_it_and_nobody_else(
    served: tuple[Path, Path], tmp_path: Path
) -> None:
    with running(tmp_path, *options(served)) as (url, _):
        assert url.startswith("https://")
        with BrainClient(url, verify=TrustFile(tmp_path / "ca.pem"), retry=ONCE) as client:
            assert list(client.jobs()) == []
        for client in (BrainClient(url, retry=ONCE), BrainClient(f"http{url[5:]}", retry=ONCE)):
            with client, pytest.raises(BrainUnavailableError):
                list(client.jobs())


def test_a_plain_port_is_there_where_it_is_asked_for(
    served: tuple[Path, Path], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with running(tmp_path, *options(served, f"--plain-port={port}")) as (url, _):
        assert ready(url, tmp_path / "ca.pem") == 200
        assert ready(f"http://127.0.0.1:{port}") == 200


def test_a_renewed_certificate_is_shown_without_a_restart(
    served: tuple[Path, Path], tmp_path: Path
) -> None:
    with running(tmp_path, *options(served)) as (url, _):
        kept = TrustFile(tmp_path / "ca.pem")
        with BrainClient(url, verify=kept, retry=ONCE) as client:
            assert list(client.jobs()) == []
            other = tmp_path / "other"
            other.mkdir()
            Authority().write_serving(other, "127.0.0.1")
            for name in ("server.key", "server.pem", "ca.pem"):  # one after the other
                (other / name).replace(tmp_path / name)
            eventually(lambda: is_shown(url, tmp_path / "ca.pem"), "the new one is shown")
            assert list(client.jobs()) == []  # on the connection that it has, or with the new one


def is_shown(url: str, authority: Path) -> bool:
    try:
        return ready(url, authority) == 200
    except ssl.SSLCertVerificationError:
        return False


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + patient(15)
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_what_cannot_be_read_leaves_the_old_one(
    served: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = served
    shown = ServingCertificate(certificate, key)
    good = key.read_text()
    for text in ("", "nonsense", Authority().client("somebody")[1].decode()):
        key.write_text(text)
        shown.refresh()
    assert "not renewed, the old one stays" in caplog.text
    assert good not in caplog.text
    key.write_text(good)
    shown.refresh()
    assert ServingCertificate(certificate, key)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("text", [None, "", "nonsense"])
def test_files_that_hold_no_certificate_are_named(
    served: tuple[Path, Path], which: int, text: str | None
) -> None:
    path = served[which]
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(CertificateError, match=path.name):
        ServingCertificate(*served)


def test_a_key_with_a_password_asks_nobody(served: tuple[Path, Path]) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(served[1].read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    served[1].write_bytes(encrypted)
    with pytest.raises(CertificateError, match="unencrypted"):
        ServingCertificate(*served)


def test_a_trust_file_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrainAddressError, match=r"none\.pem: cannot be read"):
        TrustFile(tmp_path / "none.pem")
