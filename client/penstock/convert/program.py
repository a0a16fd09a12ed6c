"""A container's command line under Penstock's agent: ``penstock run ... -- PROGRAM``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from penstock.convert.launchers import (
    ENVIRONMENT,
    Launch,
    Launcher,
    hidden_launcher,
    launch_of,
)
from penstock.convert.shell_text import SHELLS, Simple, commands

AGENT: Final = ("penstock", "run")
_VARIABLE: Final = re.compile(r"\$[({]?([A-Za-z_][A-Za-z0-9_]*)[)}]?")
_SHELL_TEXT: Final = re.compile(r"-[a-z]*c")
_MAX_PROCESSES: Final = 4096


@dataclass(frozen=True)
class Setting:
    """What the source's own system would have told a launcher.

    Attributes:
        processes: of a pod, where the command does not say: a number, gpu, cpu or auto.
        gpus: that the container's limits give it; 0: none that are counted.
        ranks: whether a program without a launcher is one rank of a world.
        variables: numbers that the system puts into the environment, by name.
    """

    processes: str = "1"
    gpus: int = 0
    ranks: bool = False
    variables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """What a container is to run.

    Attributes:
        command: all of it.
        launcher: the launcher that was left out; None: there was none.
        dropped: options that have no correspondence, with value and meaning.
        nodes: least and greatest number of pods that the launcher was told; None: not said.
        max_restarts: failures that the launcher was told to bear.
        node_unit: how many pods come and go together, as the launcher was told.
        environment: variables that stand for options.
        asked: what somebody has to look at.
    """

    command: list[str]
    launcher: Launcher | None = None
    dropped: tuple[tuple[str, str | None, str], ...] = ()
    nodes: tuple[int, int] | None = None
    max_restarts: int | None = None
    node_unit: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()


def agent_command(words: Sequence[str], setting: Setting) -> Program:
    """The command line under Penstock's agent.

    Raises:
        ValueError: it has no correspondence; the message says what to do.
    """
    if tuple(words[:2]) == AGENT:
        return Program(list(words))
    at = _shell_text(words)
    if at is not None:
        return _in_shell(words, at, setting)
    launch = launch_of(words)
    if launch is not None:
        program = _interpreted(launch, words[launch.script])
        command = [*_agent(launch, setting), *program, *words[launch.script :]]
        return _launched(launch, command, setting)
    if hidden := hidden_launcher(words):
        raise ValueError(
            f"{hidden} stands behind another program: begin the command with it, so that its "
            "processes can be started here"
        )
    return Program([*_plain(setting), *words])


def _plain(setting: Setting) -> list[str]:
    return [*AGENT, "--nproc-per-node=1", "--"] if setting.ranks else [*AGENT, "--"]


def _shell_text(words: Sequence[str]) -> int | None:
    """Index of the text that a shell is to run; None where there is none."""
    if PurePosixPath(words[0]).name not in SHELLS:
        return None
    for at, word in enumerate(words[1:-1], 1):
        if _SHELL_TEXT.fullmatch(word):
            return at + 1
    return None


def _in_shell(words: Sequence[str], at: int, setting: Setting) -> Program:
    text = words[at]
    found = [
        (one, launch)
        for one in commands(text)
        if (launch := launch_of([word.value for word in one.words])) is not None
    ]
    if not found:
        if any(hidden_launcher([word.value for word in one.words]) for one in commands(text)):
            raise ValueError("a launcher stands behind another program: begin the command with it")
        return Program([*_plain(setting), *words])
    if len(found) > 1:
        raise ValueError("two launchers in one command: a job is one program, so make two jobs")
    [(simple, launch)] = found
    script = simple.words[launch.script]
    agent = [*_agent(launch, setting), *_interpreted(launch, script.value)]
    if simple.last and not simple.before:
        agent.insert(0, "exec")  # so that SIGTERM reaches the agent
    text = text[: simple.words[0].start] + " ".join(agent) + " " + text[script.start :]
    return _launched(launch, [*words[:at], text, *words[at + 1 :]], setting, simple)


def _agent(launch: Launch, setting: Setting) -> list[str]:
    return [*AGENT, f"--nproc-per-node={_processes(launch, setting)}", "--"]


def _interpreted(launch: Launch, script: str) -> list[str]:
    """What stands before the script: torchrun runs what it is given in Python."""
    if launch.has("--no-python"):
        return []
    if launch.has("-m", "--module"):
        return ["-m"]
    return [] if script.endswith(".py") or "$" in script else ["python"]


def _processes(launch: Launch, setting: Setting) -> str:
    """Processes of each pod: a number where it can be known."""
    launcher = launch.launcher
    said = launch.value(launcher.processes)
    if said is not None and not launcher.per_pod:
        said = _share(said, launch.value("--num-machines") or "1", launcher)
    if said is None:
        said = setting.processes
        if launcher.one_without_gpus or launch.has("--auto-config"):
            said = str(setting.gpus or 1)
        elif launcher.processes == "--num-gpus":
            said = "gpu"
    if said in ("gpu", "auto") and setting.gpus:
        return str(setting.gpus)
    if said.isdecimal() and not 1 <= int(said) <= _MAX_PROCESSES:
        raise ValueError(f"{launcher.processes} {said}: must be from 1 to {_MAX_PROCESSES}")
    if not (said.isdecimal() or said in ("gpu", "cpu", "auto") or "$" in said):
        raise ValueError(f"{launcher.processes} {said}: must be a number, gpu, cpu or auto")
    return said


def _share(total: str, machines: str, launcher: Launcher) -> str:
    """Processes of one of several machines."""
    if machines == "1":
        return total
    if total.isdecimal() and machines.isdecimal() and int(machines) > 0:
        return str(int(total) // int(machines))
    raise ValueError(
        f"{launcher.name} {launcher.processes} {total}: counts those of {machines} machines: "
        "write both as numbers"
    )


def _launched(
    launch: Launch, command: list[str], setting: Setting, simple: Simple | None = None
) -> Program:
    asked = []
    if launch.launcher.passes_local_rank and not launch.has("--use-env", "--no-local-rank"):
        asked.append("scripts are not given --local-rank: read LOCAL_RANK in the program")
    if simple is not None and not simple.last:
        asked.append("the shell goes on after the program: SIGTERM reaches it, and not the agent")
    dropped = tuple(
        (name, value, meaning)
        for name, value in launch.given
        if (meaning := _meaning(launch.launcher, name))
    )
    unit = launch.value("--node-unit")
    node_unit = _number(unit, setting.variables)
    if unit is not None and not node_unit:
        dropped = (*dropped, ("--node-unit", unit, "spec.replicaSpecs.worker.nodeUnit is a number"))
    environment = {
        ENVIRONMENT[name]: "true" if value is None else value
        for name, value in launch.given
        if name in ENVIRONMENT
    }
    return Program(
        command,
        launch.launcher,
        dropped,
        nodes=_nodes(launch, setting.variables),
        max_restarts=_number(launch.value("--max-restarts"), setting.variables),
        node_unit=node_unit or None,
        environment=environment,
        asked=tuple(asked),
    )


def _meaning(launcher: Launcher, name: str) -> str:
    option = launcher.options.get(name)
    return "no option that has a meaning here" if option is None else option.meaning


def _nodes(launch: Launch, variables: Mapping[str, int]) -> tuple[int, int] | None:
    """Least and greatest number of pods, where both are known."""
    said = launch.value("--nnodes")
    if said is None:
        return None
    low, _, high = said.partition(":")
    found = _number(low, variables), _number(high or low, variables)
    if found[0] is None or found[1] is None or not 1 <= found[0] <= found[1]:
        return None
    return found[0], found[1]


def _number(text: str | None, variables: Mapping[str, int]) -> int | None:
    if text is None:
        return None
    known = _VARIABLE.sub(lambda found: str(variables.get(found[1], "")), text)
    return int(known) if known.isdecimal() and len(known) < 10 else None
