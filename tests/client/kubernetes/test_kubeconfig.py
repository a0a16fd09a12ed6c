"""A kubeconfig is read as kubectl reads it, and what is wrong with one is said in one line."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.client import BrainAddressError, KubeconfigError
from penstock.client.kubernetes.kubeconfig import read_access
from penstock.client.token import authorization

Json = dict[str, Any]


def config(user: Json | None = None, cluster: Json | None = None, **context: str) -> Json:
    return {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://server:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
    }


def write(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_a_plain_one(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config({"token": "secret"}, namespace="team"))
    access = read_access(path)
    assert (access.server, access.namespace, access.context) == ("http://server:1", "team", "here")
    assert access.token() == "secret"
    assert "secret" not in repr(access).replace(repr(access.token), "")


def test_files_are_merged_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "one", {"current-context": "here", "contexts": []})
    second = write(tmp_path / "two", config({"token": "second"}))
    third = write(tmp_path / "three", config({"token": "third"}, {"server": "http://other:1"}))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (first, second, third))))
    access = read_access()
    assert (access.server, access.token()) == ("http://server:1", "second")


def test_an_option_goes_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    assert read_access(write(tmp_path / "config", config())).token() is None


def test_a_token_file_is_read_anew_and_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    access = read_access(write(tmp_path / "config", config({"tokenFile": "token"})))
    assert access.token() == "one"
    (tmp_path / "token").write_text("two\n")
    assert access.token() == "two"


def test_a_plugin_gives_the_token_and_is_asked_once(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo asked >> {tmp_path}/asked\n"
        'echo "{\\"status\\": {\\"token\\": \\"from-$NAME-$1\\"}}"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {
            "command": "./plugin",
            "args": ["argument"],
            "env": [{"name": "NAME", "value": "plugin"}],
        }
    }
    access = read_access(write(tmp_path / "config", config(user)))
    assert access.token() == access.token() == "from-plugin-argument"
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_password_and_whom_to_act_as_are_headers(tmp_path: Path) -> None:
    user = {"username": "me", "password": "it", "as": "somebody"}
    access = read_access(write(tmp_path / "config", config(user)))
    assert access.headers == {
        "Authorization": f"Basic {base64.b64encode(b'me:it').decode()}",
        "Impersonate-User": "somebody",
    }


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("a: [", "not a kubeconfig"),
        ("just text", "not a kubeconfig"),
        (b"\xff\xfe", "cannot be read"),
        ({"clusters": []}, "no current-context"),
        ({**config(), "current-context": "there"}, "no context 'there'; there are: here"),
        ({**config(), "clusters": []}, "names cluster 'c', which is not there"),
        ({**config(), "users": []}, "names user 'u', which is not there"),
        ("a: " + "[" * 5000, "exceeded max depth"),
        ({**config(), "clusters": 5}, "clusters is no list"),
        (config(cluster={"server": "server"}), "cluster 'c': server: an address http[s]://HOST"),
        (config(cluster={"server": "https://host:port"}), "server: an address"),
        (config(cluster={"server": "http://" + "x" * 300}), "server: an address"),
        (config(cluster={"server": "https://ho st"}), "server: an address"),
        (config(cluster={"server": "https://me:pass@host"}), "a password do not belong into it"),
        (config(cluster={"proxy-url": "socks5://host"}), "proxy-url: an address http[s]://"),
        (config({"auth-provider": {"name": "gcp"}}), "auth-provider is no longer part"),
        (config({"auth-provider": "gcp"}), "auth-provider is no longer part"),
        (config({"exec": "aws"}), "exec: a command, args and env"),
        (config({"exec": {"command": "aws", "args": 5}}), "exec: a command, args and env"),
        (config({"exec": {"command": "aws", "env": [{"name": "A"}]}}), "exec: a command"),
        (config({"as": "\u00e9"}), "as: '\u00e9' has characters"),
        (config({"as": "me", "as-groups": ["admins"]}), "as-groups is not understood"),
        (
            config({"client-certificate-data": "eA=="}, {"server": "https://s"}),
            "a client-certificate and no client-key",
        ),
        (
            config(
                cluster={"server": "https://s", "certificate-authority-data": "%%%"},
            ),
            "certificate-authority-data is not base64",
        ),
        (
            config(cluster={"server": "https://s", "certificate-authority": "nowhere.crt"}),
            "nowhere.crt: No such file",
        ),
        (
            config(
                cluster={
                    "server": "https://s",
                    "certificate-authority-data": base64.b64encode(b"none").decode(),
                }
            ),
            "a certificate or key cannot be used",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, document: Any, said: str) -> None:
    path = tmp_path / "config"
    if isinstance(document, bytes):
        path.write_bytes(document)
    else:
        write(path, document)
    with pytest.raises(KubeconfigError) as caught:
        read_access(path)
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("token", ["s3cret and more", "s3cret\nof two lines", "s3cr\u00e9t"])
def test_what_is_no_token_is_never_quoted(tmp_path: Path, token: str) -> None:
    """The transport's own error would show it."""
    with pytest.raises(KubeconfigError, match="the user's token has spaces") as caught:
        read_access(write(tmp_path / "config", config({"token": token})))
    assert "s3c" not in str(caught.value)
    (tmp_path / "token").write_text(token.replace("\u00e9", " "))
    access = read_access(write(tmp_path / "config", config({"tokenFile": "token"})))
    with pytest.raises(KubeconfigError, match="has spaces") as caught:
        access.token()
    assert "s3c" not in str(caught.value)
    with pytest.raises(BrainAddressError, match="has spaces") as of_brain:
        authorization(token)
    assert "s3c" not in str(of_brain.value)


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ({"command": "no-such-plugin", "installHint": "get it there"}, "get it there"),
        ({"command": "false"}, "failed"),
        ({"command": "echo", "args": ["no json"]}, "gave no token"),
    ],
)
def test_a_plugin_that_fails_is_named(tmp_path: Path, plugin: Json, said: str) -> None:
    access = read_access(write(tmp_path / "config", config({"exec": plugin})))
    with pytest.raises(KubeconfigError, match=said):
        access.token()


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubeconfigError, match=r"no kubeconfig at .*/.kube/config"):
        read_access()
