"""What each rank runs, as it is named behind ``--nproc-per-node``: as torchrun takes it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LAUNCHERS: Final = (
    "torchrun",
    "accelerate-launch",
    "composer",
    "deepspeed",
    "dlrover-run",
    "horovodrun",
    "jsrun",
    "mpiexec",
    "mpirun",
    "orterun",
    "srun",
)
_LAUNCHING_COMMANDS: Final = (
    ("accelerate", "launch"),
    ("colossalai", "run"),
    ("fabric", "run"),
    ("torchx", "run"),
)
_LAUNCHING_MODULES: Final = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "dlrover.trainer.torch.elastic_run",
)


def rank_command(words: Sequence[str]) -> list[str]:
    """The command of one process.

    ``train.py ARGS`` and ``-m MODULE ARGS`` are run by this interpreter; all else is a program.

    Raises:
        ValueError: it is a launcher itself, or a script that is not there.
    """
    if launcher := _launcher(words):
        raise ValueError(
            f"{launcher}: --nproc-per-node starts the processes itself: leave the launcher and its "
            "options out, as in penstock run --nproc-per-node=2 -- train.py ARGS"
        )
    if words[0] == "-m":
        return [sys.executable, *words]
    if words[0].endswith(".py"):
        if not Path(words[0]).is_file():
            raise ValueError(f"{words[0]}: there is no such script")
        return [sys.executable, *words]
    return list(words)


def _launcher(words: Sequence[str]) -> str:
    """The launcher that a command begins with; empty where it is none."""
    name = Path(words[0]).name
    if name in _LAUNCHERS:
        return name
    if (name, *words[1:2]) in _LAUNCHING_COMMANDS:
        return f"{name} {words[1]}"
    at = words.index("-m") if "-m" in words[:3] else -1
    if at >= 0 and (at == 0 or name.startswith("python")):
        module = words[at + 1] if len(words) > at + 1 else ""
        return module if module in _LAUNCHING_MODULES else ""
    return ""
