"""A pod's service account is where client libraries look for it, in their code."""

from __future__ import annotations

import ssl
from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, pod, python, run
from penstock_cluster.kubelet.hook.penstock_account import redirected

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"

SYNCHRONOUS = """
from kubernetes import client, config
config.load_incluster_config()
print([pod.metadata.name for pod in client.CoreV1Api().list_namespaced_pod("default").items])
"""

ASYNCHRONOUS = """
import asyncio
from kubernetes.aio import client, config
async def main():
    config.load_incluster_config()
    async with client.ApiClient() as api:
        pods = await client.CoreV1Api(api).list_namespaced_pod("default")
        print([pod.metadata.name for pod in pods.items])
asyncio.run(main())
"""

# What else programs do with files, and what some ask about the calls of `os`.
OTHERWISE = f"""
import builtins, io, os, pathlib, shutil, ssl, subprocess, sys, tempfile
folder = pathlib.Path("{FOLDER}")
token = (folder / "token").read_text()
assert token == open(b"{FOLDER}/token".decode()).read() == open(file="{FOLDER}/token").read()
assert os.read(os.open(folder / "token", os.O_RDONLY), 10_000).decode() == token
same = open("/run/secrets/kubernetes.io/serviceaccount/namespace").read()
assert (folder / "namespace").read_text() == same
assert set(os.listdir(folder)) >= {{"token", "ca.crt", "namespace"}}
assert sorted(entry.name for entry in folder.iterdir()) == sorted(os.listdir(folder))
assert (folder / "ca.crt").is_file() and os.path.isdir(folder) and os.access(folder, os.R_OK)
assert not os.path.exists("{FOLDER}2") and not (folder / "other").exists()
ssl.create_default_context(cafile=str(folder / "ca.crt"))
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(folder / "ca.crt")
assert builtins.open is io.open
assert os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
assert shutil.rmtree.avoids_symlink_attacks
class Holder:
    opens, looks = open, os.stat
assert Holder().opens(__file__ if "__file__" in globals() else os.devnull) and Holder().looks(".")
with tempfile.TemporaryDirectory() as scratch:
    path = pathlib.Path(scratch) / "file"
    path.write_bytes(b"content")
    shutil.copy2(path, f"{{scratch}}/copy")
    with open(os.open(path, os.O_RDONLY), "rb") as file:
        assert file.read() == b"content"
child = [sys.executable, "-c", f"print(open('{FOLDER}/namespace').read(), end='')"]
print(subprocess.check_output(child, text=True))
"""


def test_client_libraries_find_their_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("a", SYNCHRONOUS))
        await cluster.ended("a", 30)
        assert await cluster.log("a") == "['a']\n"
        await cluster.run(python("b", ASYNCHRONOUS))
        await cluster.ended("b", 30)
        assert await cluster.log("b") == "['a', 'b']\n"

    run(scenario, tmp_path, tls=True)


def test_other_ways_to_the_same_files(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", OTHERWISE))
        await cluster.ended("p", 30)
        assert await cluster.log("p") == "default\n"

    run(scenario, tmp_path, tls=True)


def test_a_pod_without_an_account_has_none(tmp_path: Path) -> None:
    source = f"""
import os
from kubernetes import config
assert not os.path.exists("{FOLDER}")
try:
    config.load_incluster_config()
except config.ConfigException as error:
    print(error)
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source, automountServiceAccountToken=False))
        await cluster.ended("p", 30)
        assert await cluster.log("p") == "Service token file does not exist.\n"

    run(scenario, tmp_path, tls=True)


def test_tokens_are_renewed_in_place(tmp_path: Path) -> None:
    """Both tokens are good when they are read, and the first one is refused once it has expired."""
    source = f"""
import os, time, urllib.request, urllib.error, ssl
address = f"https://{{os.environ['KUBERNETES_SERVICE_HOST']}}:{{os.environ['KUBERNETES_SERVICE_PORT']}}"
context = ssl.create_default_context(cafile="{FOLDER}/ca.crt")
def ask(token):
    request = urllib.request.Request(f"{{address}}/api/v1/namespaces/default/pods")
    request.add_header("Authorization", f"Bearer {{token}}")
    try:
        return urllib.request.urlopen(request, context=context).status
    except urllib.error.HTTPError as error:
        return error.code
read = lambda: open("{FOLDER}/token").read()
first = read()
print(ask(first))
while (second := read()) == first:
    time.sleep(0.05)
print(ask(second))
while ask(first) == 200:
    time.sleep(0.1)
print(ask(first), ask(read()))
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source))
        await cluster.ended("p", 40)
        assert await cluster.log("p") == "200\n200\n401 200\n"

    run(scenario, tmp_path, tls=True, longest_token_seconds=5)


def test_a_path_that_only_begins_like_it_is_another() -> None:
    assert redirected(f"{FOLDER}/token", "/to") == "/to/token"
    assert redirected(FOLDER, "/to") == "/to"
    for path in (f"{FOLDER}s/token", f"/mnt{FOLDER}", "token", b"bytes", 3, None):
        assert redirected(path, "/to") == path


def test_processes_that_are_no_pods_are_left_alone() -> None:
    assert type(open) is type(len)
    assert type(ssl.SSLContext.load_verify_locations) is not type(pod)
