"""``penstock up`` returns when everything answers; ``penstock down`` leaves nothing running."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from benchmarks.elastic.cluster import administrators_client
from penstock.local.control_plane.components import penstock
from penstock.local.control_plane.home import Home
from tests.e2e.control_plane import KUBECTL, ROOT, job_manifest, needs_kubectl, script, until
from tests.local.supervisor.test_supervisor import alive

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(
    *arguments: str, kubeconfig: Path | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    return subprocess.run(
        penstock(*arguments),
        capture_output=True,
        text=True,
        timeout=55,
        cwd=cwd,
        env=environment,
    )


@contextlib.contextmanager
def somebody_elses_cluster(folder: Path, *options: str) -> Iterator[Path]:
    """A cluster that `penstock up` did not start; yields its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    places = (f"--kubeconfig={kubeconfig}", f"--pods-folder={folder / 'pods'}")
    command = [sys.executable, "-m", "penstock_cluster", "up", "--port=0", *places, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            until(kubeconfig.exists)
            yield kubeconfig
        finally:
            process.terminate()
            process.wait(timeout=20)


def test_up_comes_back_and_down_stops_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    option = f"--home={home.folder}"
    up = run("up", option, "--any-ports")
    try:
        assert up.returncode == 0, up.stderr
        assert f"export KUBECONFIG={home.kubeconfig}" in up.stdout
        state = home.read_state()
        assert state is not None
        pids = [component.pid for component in state.components.values()]
        assert sorted(state.components) == ["brain", "cluster", "controller", "scheduler"]
        again = run("up", option, "--any-ports")
        assert again.returncode == 1
        assert "already up" in again.stderr
    finally:
        down = run("down", option, "--purge")
    assert down.returncode == 0, down.stderr
    assert not any(alive(pid) for pid in pids)
    until(lambda: not alive(state.supervisor_pid), 5)  # it lets go of the folder as it ends
    assert not home.folder.exists()
    assert "no control plane is up" in run("down", option).stdout


@needs_kubectl
def test_an_external_cluster_gets_controller_and_brain(tmp_path: Path) -> None:
    home = f"--home={tmp_path / 'home'}"
    with somebody_elses_cluster(tmp_path) as kubeconfig:

        def kubectl(*arguments: str, text: str | None = None) -> str:
            assert KUBECTL is not None
            return subprocess.run(
                [KUBECTL, f"--kubeconfig={kubeconfig}", *arguments],
                input=text,
                capture_output=True,
                text=True,
                timeout=50,
                check=True,
            ).stdout

        up = run("up", home, "--any-ports", "--external", kubeconfig=kubeconfig)
        try:
            assert up.returncode == 0, up.stderr
            assert "cluster is up" not in up.stdout
            manifest = job_manifest("tiny", script("print('trained')"))
            kubectl("apply", "-f", "-", text=json.dumps(manifest))
            kubectl("wait", "--for=condition=Succeeded", "ej/tiny", "--timeout=45s")
            token = Home(tmp_path / "home").brain_token
            assert token.stat().st_mode & 0o077 == 0
            assert f"export PENSTOCK_BRAIN_TOKEN_FILE={token}" in up.stdout
        finally:
            run("down", home)
        assert "tiny" in kubectl("get", "ej")


@needs_kubectl
def test_who_shows_a_certificate_has_a_token_for_the_brain(tmp_path: Path) -> None:
    """As with the kubeconfigs of kubeadm, kind and k3s, which prove nothing to the Brain."""
    with somebody_elses_cluster(tmp_path, "--client-certificate", "--rbac") as kubeconfig:
        [user] = yaml.safe_load(kubeconfig.read_text())["users"]
        assert "token" not in user["user"]
        up = run("up", "--any-ports", "--external", kubeconfig=kubeconfig, cwd=tmp_path)
        try:
            assert up.returncode == 0, up.stderr

            def planned_for() -> bool:
                """The Brain took what the planner sent, and knows who asks."""
                listed = run("fragmentation", "-o", "json", kubeconfig=kubeconfig, cwd=tmp_path)
                assert listed.returncode == 0, listed.stderr
                return bool(json.loads(listed.stdout or "{}").get("nodes"))

            until(planned_for)
            job = tmp_path / "job.json"
            job.write_text(json.dumps(job_manifest("tiny", script("print('trained')"))))
            applied = run("submit", f"--filename={job}", kubeconfig=kubeconfig, cwd=tmp_path)
            assert applied.returncode == 0, applied.stderr

            def trained() -> bool:
                told = run("describe", "tiny", kubeconfig=kubeconfig, cwd=tmp_path)
                assert told.returncode == 0, told.stderr
                return "Succeeded" in told.stdout

            until(trained)
            examined = run("doctor", kubeconfig=kubeconfig, cwd=tmp_path)
            assert examined.returncode == 0, examined.stdout
        finally:
            run("down", cwd=tmp_path)


def leases(kubeconfig: Path) -> set[tuple[str, str]]:
    """The Leases of the control plane that are in the cluster."""
    with administrators_client(kubeconfig.read_text()) as client:
        found = client.get("/apis/coordination.k8s.io/v1/leases").raise_for_status().json()
    return {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one in found["items"]
        if one["metadata"]["name"].startswith("penstock-")
    }


@contextlib.contextmanager
def controller(kubeconfig: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A controller of somebody else's."""
    command = penstock("controller", f"--kubeconfig={kubeconfig}", "--metrics-port=0", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert "listening" in process.stdout.readline()
            yield process
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.mark.parametrize("namespace", ["penstock-system", "default"])
def test_an_external_cluster_with_a_leader_is_left_alone(tmp_path: Path, namespace: str) -> None:
    """Whether its Lease lies where the chart's does or where one of an earlier release did."""
    home = f"--home={tmp_path / 'home'}"
    options = () if namespace == "penstock-system" else (f"--lease-namespace={namespace}",)
    with somebody_elses_cluster(tmp_path) as kubeconfig, controller(kubeconfig, *options):
        until(lambda: leases(kubeconfig) == {(namespace, "penstock-controller")})
        up = run("up", home, "--any-ports", "--external", kubeconfig=kubeconfig)
        assert up.returncode == 1, up.stdout
        assert "a controller already leads in this cluster: " in up.stderr
        assert f"(Lease {namespace}/penstock-controller, renewed just now)" in up.stderr
        assert "penstock down" in up.stderr
        assert "Traceback" not in up.stderr
        assert leases(kubeconfig) == {(namespace, "penstock-controller")}
    assert "no control plane is up" in run("down", home).stdout


def test_a_controller_beside_an_external_control_plane_stands_by(tmp_path: Path) -> None:
    home = f"--home={tmp_path / 'home'}"
    with somebody_elses_cluster(tmp_path) as kubeconfig:
        up = run("up", home, "--any-ports", "--external", kubeconfig=kubeconfig)
        try:
            assert up.returncode == 0, up.stderr
            with controller(kubeconfig):
                assert leases(kubeconfig) == {
                    ("penstock-system", "penstock-controller"),
                    ("penstock-system", "penstock-scheduler"),
                }
        finally:
            run("down", home)


def test_a_lease_that_a_dead_controller_left_holds_nobody_up(tmp_path: Path) -> None:
    home = f"--home={tmp_path / 'home'}"
    with somebody_elses_cluster(tmp_path) as kubeconfig:
        with controller(kubeconfig) as killed:
            until(lambda: ("penstock-system", "penstock-controller") in leases(kubeconfig))
            killed.kill()
        up = run("up", home, "--any-ports", "--external", kubeconfig=kubeconfig)
        try:
            assert up.returncode == 0, up.stderr
        finally:
            run("down", home)
