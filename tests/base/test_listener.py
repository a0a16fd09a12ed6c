"""One function listens at any address: IPv4, IPv6, both, with or without brackets."""

from __future__ import annotations

import os
import socket

import pytest

from penstock.base.listener import (
    address_of,
    create_listener,
    create_local_listener,
    is_loopback,
    split_address,
)


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]")]
)
def test_it_can_be_reached_where_its_address_says(host: str, shown: str) -> None:
    with create_listener(host, 0) as listener:
        address = address_of(listener)
        assert address == f"{shown}:{listener.getsockname()[1]}" == address_of(listener, host)
        socket.create_connection(split_address(address), 5).close()


def test_a_name_is_resolved() -> None:
    with create_listener("localhost", 0) as listener:
        socket.create_connection(split_address(address_of(listener)), 5).close()


def test_the_address_of_all_takes_both_families() -> None:
    with create_listener("::", 0) as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), 5).close()


def test_one_address_of_ipv6_takes_no_other_family() -> None:
    with create_listener("::1", 0) as listener, pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5)


def test_what_it_accepts_sends_without_delay() -> None:
    for host in ("127.0.0.1", "::1"):
        with (
            create_listener(host, 0) as listener,
            socket.create_connection(listener.getsockname()[:2]),
        ):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_is_taken_once() -> None:
    with create_listener("127.0.0.1", 0) as listener, pytest.raises(OSError, match="in use"):
        create_listener("127.0.0.1", listener.getsockname()[1])


def test_a_name_that_is_none() -> None:
    with pytest.raises(socket.gaierror):
        create_listener("no such host", 0)


def test_one_for_this_machine_has_a_name_of_its_own() -> None:
    name = f"penstock-test-{os.getpid()}"
    with create_local_listener(name), socket.socket(socket.AF_UNIX) as caller:
        caller.connect(f"\0{name}")
        with pytest.raises(OSError, match="in use"):
            create_local_listener(name)
    with create_local_listener(name, socket.SOCK_DGRAM) as listener:
        assert listener.type == socket.SOCK_DGRAM


@pytest.mark.parametrize("address", ["", "host", "host:", "[::1]"])
def test_an_address_without_a_port(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_address(address)


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.1.2.3", False),
        ("127.example.org", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer
