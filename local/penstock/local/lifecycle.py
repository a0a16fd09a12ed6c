"""What ``penstock up`` and ``penstock down`` do: start, report and stop a control plane.

``up`` in the background starts one more process, the supervisor, and returns when everything
answers or when something could not start; the supervisor holds the folder until ``down``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from penstock.crds import environment
from penstock.local.control_plane.components import (
    BRAIN,
    CLUSTER,
    Settings,
    control_plane,
    penstock,
)
from penstock.local.control_plane.home import ControlPlaneState, Home, HomeError
from penstock.local.control_plane.supervisor import StartError, last_lines, supervised
from penstock.local.install import install
from penstock.local.leaders import refuse_beside_another

UP_TIMEOUT_SECONDS: Final = 120.0
DOWN_TIMEOUT_SECONDS: Final = 60.0

Say = Callable[[str], None]


async def run_in_foreground(settings: Settings, say: Say) -> None:
    """Run the control plane until SIGINT or SIGTERM; raises HomeError and StartError."""
    home = settings.home
    home.create()
    with home.lock():
        # Whoever reads the state from here on must not find an earlier supervisor's.
        home.state_file.unlink(missing_ok=True)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)

        def started(name: str) -> None:
            if stop.is_set():
                raise StartError(f"told to stop while {name} was starting")
            say(f"{name} is up")

        server = ""
        if settings.kubeconfig is not None:
            await refuse_beside_another(settings.kubeconfig)
            server = await install(settings.kubeconfig)
        components = control_plane(settings)
        async with supervised(home, components, started, installer(home), server) as addresses:
            for line in how_to_use(settings, addresses):
                say(line)
            await stop.wait()
            say("stopping")


def installer(home: Home) -> Callable[[str], Awaitable[None]]:
    """What installs Penstock's manifests as soon as the embedded cluster answers."""

    async def prepare(name: str) -> None:
        if name == CLUSTER:
            await install(home.kubeconfig)

    return prepare


def start_in_background(settings: Settings, say: Say) -> None:
    """Start the supervisor and wait until it reports; raises HomeError and StartError."""
    home = settings.home
    home.create()
    with home.lock():
        pass  # refused here and now if taken; the supervisor takes it for itself
    home.state_file.unlink(missing_ok=True)
    log = home.logs / "supervisor.log"
    with log.open("ab") as output:
        supervisor = subprocess.Popen(
            penstock("up", "--foreground", *_same_options(settings)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=_environment(settings),
        )
    reported: set[str] = set()
    deadline = time.monotonic() + UP_TIMEOUT_SECONDS
    while True:
        state = home.read_state()
        if state is not None:
            for name in _answering(state) - reported:
                reported.add(name)
                say(f"{name} is up at {state.components[name].url}")
            if state.error is not None:
                supervisor.wait(timeout=DOWN_TIMEOUT_SECONDS)
                raise StartError(state.error)
            if state.ready:
                addresses = {name: part.url for name, part in state.components.items()}
                for line in how_to_use(settings, addresses):
                    say(line)
                return
        if supervisor.poll() is not None:
            raise StartError(f"the supervisor ended\n{last_lines(log)}")
        if time.monotonic() > deadline:
            supervisor.terminate()
            raise StartError(
                f"not up after {UP_TIMEOUT_SECONDS:.0f} s; the logs are in {home.logs}"
            )
        time.sleep(0.1)


def stop(home: Home, purge: bool, say: Say) -> None:
    """Stop the supervisor and wait for it; nothing to do where none runs."""
    if home.is_locked():
        state = home.read_state()
        if state is None:
            raise HomeError(f"a control plane is just starting in {home.folder}; try again")
        os.kill(state.supervisor_pid, signal.SIGTERM)
        deadline = time.monotonic() + DOWN_TIMEOUT_SECONDS
        while home.is_locked():
            if time.monotonic() > deadline:
                raise HomeError(
                    f"the supervisor (pid {state.supervisor_pid}) did not stop within "
                    f"{DOWN_TIMEOUT_SECONDS:.0f} s; its logs are in {home.logs}"
                )
            time.sleep(0.1)
        say("the control plane is down")
    else:
        say(f"no control plane is up in {home.folder}")
    if purge and home.folder.exists():
        kept = home.purge()
        say(
            f"emptied {home.folder}, but for what is not this control plane's: {', '.join(kept)}"
            if kept
            else f"removed {home.folder}"
        )


def how_to_use(settings: Settings, addresses: dict[str, str]) -> list[str]:
    """Lines that tell a person what to type next."""
    kubeconfig = (settings.kubeconfig or settings.home.kubeconfig).absolute()
    url = addresses[BRAIN]
    lines = [f"{url}/ shows all jobs, {url}/docs the REST API; both take a token of the cluster"]
    if CLUSTER in addresses:
        lines.append(f"export KUBECONFIG={kubeconfig}")
        lines.append("kubectl config view --raw -o jsonpath='{.users[0].user.token}'  # a token")
    else:
        # The command line finds both by itself, but only from the folder in which this was typed.
        lines.append(f"export {environment.BRAIN_URL}={url}")
        lines.append(
            f"export {environment.BRAIN_TOKEN_FILE}={settings.home.brain_token.absolute()}"
        )
    lines.append("kubectl apply -f examples/digits/job.yaml")
    lines.append("kubectl get ej --watch")
    return lines


def _answering(state: ControlPlaneState) -> set[str]:
    return {name for name, component in state.components.items() if component.url}


def _same_options(settings: Settings) -> list[str]:
    options = [f"--home={settings.home.folder}"]
    if settings.nodes_file is not None:
        options.append(f"--nodes={settings.nodes_file}")
    if settings.brain_config is not None:
        options.append(f"--brain-config={settings.brain_config}")
    if settings.kubeconfig is not None:
        options.append("--external")
    if settings.advertised_brain_url is not None:
        options.append(f"--brain-url={settings.advertised_brain_url}")
    if settings.ports.brain == 0:
        options.append("--any-ports")
    if settings.enforces_cpu_limits:
        options.append("--enforce-cpu-limits")
    return options


def _environment(settings: Settings) -> dict[str, str]:
    environment = dict(os.environ)
    if settings.kubeconfig is not None:
        environment["KUBECONFIG"] = str(Path(settings.kubeconfig).absolute())
    return environment
