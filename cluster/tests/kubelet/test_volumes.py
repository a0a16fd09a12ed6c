"""Volumes of real pods, and the paths by which their programs find them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, container, pod, python, run, until


def file_text(folder: str) -> str | None:
    file = Path(folder) / "file"
    return file.read_text() if file.exists() else None


def mounted(*mounts: tuple[str, str], **more) -> dict:
    return {"volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts], **more}


def test_an_empty_dir_is_shared_and_goes_with_the_pod(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        writer = {
            "name": "writer",
            "image": "x",
            "command": ["sh", "-c", "echo written > /scratch/file"],
            **mounted(("scratch", "/scratch")),
        }
        main = mounted(("scratch", "/elsewhere"))
        script = "cat /elsewhere/file; echo $PENSTOCK_VOLUME_SCRATCH; sleep 60"
        await cluster.run(
            pod(
                script=script,
                container=main,
                volumes=[{"name": "scratch", "emptyDir": {}}],
                initContainers=[writer],
            )
        )
        log = await cluster.log_until("p", "volumes/scratch")
        text, folder = log.split()
        assert text == "written"
        assert file_text(folder) == "written\n"
        await cluster.api.delete("pods", "p", "default")
        await cluster.gone("p")
        assert file_text(folder) is None

    run(scenario, tmp_path)


def test_paths_are_made_true_in_arguments_variables_and_working_directory(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        show = "import sys, os; print(sys.argv[1:], os.getcwd(), os.environ['WHERE'], sep='\\n')"
        main = mounted(
            ("data", "/no/such/data"),
            command=["python", "-c", show],
            args=["--path=/no/such/data/x:/no/such/data/y", "/no/such/database"],
            env=[{"name": "WHERE", "value": "/no/such/data/z"}],
            workingDir="/no/such/data",
        )
        volumes = [{"name": "data", "emptyDir": {}}]
        await cluster.run(pod(container=main, volumes=volumes))
        await cluster.ended("p")
        arguments, directory, where = (await cluster.log("p")).splitlines()
        assert directory.endswith("/volumes/data")
        assert where == f"{directory}/z"
        assert f"'--path={directory}/x:{directory}/y'" in arguments
        assert "'/no/such/database'" in arguments

    run(scenario, tmp_path)


def test_a_mount_over_this_machines_own_paths_leaves_what_it_runs_with(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        root = f"/{tmp_path.parts[1]}"
        programs = [f"/{Path(sys.executable).parts[1]}", root]
        names = [f"mount-{number}" for number in range(len(set(programs)))]
        main = mounted(
            *zip(names, sorted(set(programs)), strict=True),
            command=["python", "-c", "import os; print(os.environ['PATH'], os.environ['WHERE'])"],
            env=[{"name": "WHERE", "value": f"{root}/x"}],
        )
        volumes = [{"name": name, "emptyDir": {}} for name in names]
        await cluster.run(pod(container=main, volumes=volumes))
        await cluster.ended("p")
        path, where = (await cluster.log("p")).split()
        assert str(Path(sys.executable).parent) in path.split(":")
        assert "/volumes/mount-" in where

    run(scenario, tmp_path)


def test_config_maps_and_secrets(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        data = {"metadata": {"name": "settings"}, "data": {"a.txt": "A", "b.txt": "B"}}
        await cluster.api.create("configmaps", data, "default")
        secret = {"metadata": {"name": "keys"}, "stringData": {"key": "k"}}
        await cluster.api.create("secrets", secret, "default")
        item = {"key": "a.txt", "path": "deep/renamed", "mode": 0o600}
        volumes = [
            {"name": "all", "configMap": {"name": "settings"}},
            {"name": "some", "configMap": {"name": "settings", "items": [item]}},
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "absent", "secret": {"secretName": "absent", "optional": True}},
        ]
        main = mounted(("all", "/all"), ("some", "/some"), ("keys", "/keys"), ("absent", "/absent"))
        script = (
            "cat /all/a.txt /all/b.txt /some/deep/renamed /keys/key; echo;"
            "ls /all /some /absent; stat -L -c %a /some/deep/renamed /all/a.txt"
        )
        await cluster.run(pod(script=script, container=main, volumes=volumes))
        await cluster.ended("p")
        lines = (await cluster.log("p")).splitlines()
        assert lines[0] == "ABAk"
        assert lines[-2:] == ["600", "644"]
        assert "deep" in lines

    run(scenario, tmp_path)


def test_a_missing_source_keeps_the_pod_pending_with_an_event(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        main = mounted(("late", "/late"))
        volumes = [{"name": "late", "configMap": {"name": "late"}}]
        await cluster.run(pod(script="cat /late/k", container=main, volumes=volumes))

        async def told() -> bool:
            return "FailedMount" in await cluster.events("p")

        await until(told, "FailedMount is told")
        waiting = await cluster.pod("p")
        assert container(waiting)["state"]["waiting"]["reason"] == "ContainerCreating"
        late = {"metadata": {"name": "late"}, "data": {"k": "v"}}
        await cluster.api.create("configmaps", late, "default")
        await cluster.ended("p")
        assert await cluster.log("p") == "v"

    run(scenario, tmp_path)


def test_the_service_account_of_a_pod(tmp_path: Path) -> None:
    source = """
import json, os, ssl, urllib.request
folder = os.environ["PENSTOCK_SERVICE_ACCOUNT_DIR"]
token, namespace = (open(f"{folder}/{name}").read() for name in ("token", "namespace"))
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
url = f"https://{host}:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews"
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
request = urllib.request.Request(url, body, headers)
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
answer = json.load(urllib.request.urlopen(request, context=context))
print(namespace, answer["status"]["userInfo"]["username"])
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source))
        await cluster.ended("p")
        assert await cluster.log("p") == "default system:serviceaccount:default:default\n"

    run(scenario, tmp_path, tls=True)


def test_in_cluster_configuration_of_the_client_library(tmp_path: Path) -> None:
    source = """
import os
from kubernetes import client
from kubernetes.config import incluster_config
folder = os.environ["PENSTOCK_SERVICE_ACCOUNT_DIR"]
loader = incluster_config.InClusterConfigLoader(f"{folder}/token", f"{folder}/ca.crt")
configuration = client.Configuration()
loader.load_and_set(configuration)
api = client.CoreV1Api(client.ApiClient(configuration))
print([pod.metadata.name for pod in api.list_namespaced_pod("default").items])
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source))
        await cluster.ended("p", 30)
        assert await cluster.log("p") == "['p']\n"

    run(scenario, tmp_path, tls=True)


def test_projected_tokens_have_their_audience(tmp_path: Path) -> None:
    source = """
import base64, json, sys
payload = open("/tokens/brain".replace("/tokens", sys.argv[1])).read().split(".")[1]
print(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"])
"""

    async def scenario(cluster: Cluster) -> None:
        token = {"path": "brain", "audience": "penstock-brain", "expirationSeconds": 3600}
        label = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
        sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": [label]}}]
        volumes = [{"name": "tokens", "projected": {"sources": sources}}]
        main = mounted(
            ("tokens", "/tokens"),
            command=["sh", "-c", 'python -c "$0" /tokens; cat /tokens/labels'],
            args=[source],
        )
        await cluster.run(pod(container=main, volumes=volumes, labels={"role": "worker"}))
        await cluster.ended("p")
        audience, labels = (await cluster.log("p")).splitlines()
        assert json.loads(audience.replace("'", '"')) == ["penstock-brain"]
        assert labels == 'role="worker"'

    run(scenario, tmp_path)


def test_host_path_and_claims(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        (tmp_path / "host").mkdir()
        (tmp_path / "host" / "file").write_text("from the host")
        claim = {
            "metadata": {"name": "claim"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await cluster.api.create("persistentvolumeclaims", claim, "default")
        volumes = [
            {"name": "host", "hostPath": {"path": str(tmp_path / "host")}},
            {"name": "state", "persistentVolumeClaim": {"claimName": "claim"}},
        ]
        main = mounted(("host", "/host"), ("state", "/state"))
        script = "cat /host/file >> /state/kept; cat /state/kept"
        for name in ("first", "second"):
            await cluster.run(pod(name, script, container=main, volumes=volumes))
            await cluster.ended(name)
        assert await cluster.log("second") == "from the host" * 2

    run(scenario, tmp_path)


def test_a_changed_config_map_is_seen_whole(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        data = {"metadata": {"name": "settings"}, "data": {"k": "old", "gone": "x"}}
        await cluster.api.create("configmaps", data, "default")
        volumes = [{"name": "settings", "configMap": {"name": "settings"}}]
        script = "while :; do cat /settings/k; echo; ls /settings; sleep 0.1; done"
        await cluster.run(
            pod(script=script, container=mounted(("settings", "/settings")), volumes=volumes)
        )
        await cluster.log_until("p", "old")
        change = {"data": {"k": "new", "gone": None}}
        await cluster.api.patch("configmaps", "settings", change, "default")
        log = await cluster.log_until("p", "new", 20)
        assert "gone" in log
        await cluster.log_until("p", "new\nk\n")

    run(scenario, tmp_path)
