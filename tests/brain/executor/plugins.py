"""Algorithms that do everything an algorithm should not, for a child process to import."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from penstock.base.enums import Role, Stage, Strategy, Trigger
from penstock.brain.planning import (
    Algorithm,
    Evidence,
    History,
    JobDescription,
    Limits,
    Params,
    Plan,
    RolePlan,
)
from penstock.brain.registry import Registered


class BadParams(Params):
    """What to do."""

    deed: str = "plan"
    replicas: int = 2
    note: str = ""
    """Where to write a process id."""


def plan(history: History, job: JobDescription, limits: Limits, params: BadParams) -> Any:
    match params.deed:
        case "raise":
            raise KeyError("w_hat")
        case "exit":
            sys.exit(3)
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            while True:
                time.sleep(1)
        case "orphan":
            if os.fork() == 0:  # holds every pipe of this process, and outlives it
                Path(params.note).write_text(str(os.getpid()))
                time.sleep(60)
                os._exit(0)
            time.sleep(60)
        case "spin":
            while True:
                pass
        case "eat":
            return [bytearray(64 * 1024**2) for _ in range(1000)]
        case "nonsense":
            return {"workers": 7}
        case "print":
            sys.stdout.write("I am a plugin and I print\n" * 1000)
            sys.stdout.flush()
        case "huge":
            return good("x" * 10, figures=3 * 10**5)
        case "none":
            return None
        case "pid":
            return good(f"process {os.getpid()}")
    return good("as asked", replicas=params.replicas)


def good(message: str, replicas: int = 2, figures: int = 0) -> Plan:

    return Plan(
        stage=Stage.CREATE,
        algorithm="bad",
        roles={Role.WORKER: RolePlan(replicas=replicas)},
        reason="NoHistory",
        message=message,
        evidence=Evidence(figures={f"figure-{index}": 1.0 for index in range(figures)}),
    )


ALGORITHM = Algorithm(
    name="bad",
    version="1",
    summary="Misbehaves on demand.",
    stages=frozenset(Stage),
    triggers=frozenset(Trigger),
    strategies=frozenset(Strategy),
    params=BadParams,
    plan=plan,
)


def registered(deed: str, *, shadow: bool = False, replicas: int = 2, note: str = "") -> Registered:
    params = BadParams(deed=deed, replicas=replicas, note=note)
    return Registered(algorithm=ALGORITHM, params=params, shadow=shadow)
