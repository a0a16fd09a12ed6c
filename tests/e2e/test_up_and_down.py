"""``penstock up`` returns when everything answers; ``penstock down`` leaves nothing running."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.components import penstock
from penstock.local.home import Home
from tests.e2e.control_plane import KUBECTL, ROOT, job_manifest, needs_kubectl, script, until
from tests.local.supervisor.test_supervisor import alive

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    return subprocess.run(
        penstock(*arguments),
        capture_output=True,
        text=True,
        timeout=55,
        cwd=ROOT,
        env=environment,
    )


@contextlib.contextmanager
def somebody_elses_cluster(folder: Path) -> Iterator[Path]:
    """A cluster that `penstock up` did not start; yields its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = penstock(
        "cluster", "--port=0", f"--kubeconfig={kubeconfig}", f"--pods-folder={folder / 'pods'}"
    )
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
        finally:
            run("down", home)
        assert "tiny" in kubectl("get", "ej")
