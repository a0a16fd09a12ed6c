"""Programs that start the processes of a world, their options, and what each means here.

``penstock run --nproc-per-node`` is such a program itself, so that none of them stays. Options are
read as torchrun reads them: dashes and underscores are one, a value follows or stands after ``=``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

_KNOWS: Final = "the job knows its pods and where they meet"
_LOGS: Final = "what each process writes is in the pod's log: penstock logs JOB"
_WORLD: Final = "all pods of the job are one world"
_WATCH: Final = "the agent of each pod watches its processes"
_CHECK: Final = "no check of nodes before the start: a slow or a lost pod is found while it trains"
_SAVES: Final = "when it saves is the program's own business"

VALUE: Final = True
FLAG: Final = False


@dataclass(frozen=True)
class Option:
    """An option of a launcher."""

    takes_value: bool
    meaning: str = ""
    """What it means here; empty: it is carried over."""


@dataclass(frozen=True)
class Launcher:
    """A launcher.

    Attributes:
        name: as people write it.
        options: by name, with dashes.
        processes: the option that says how many processes a pod has.
        passes_local_rank: whether scripts are given ``--local-rank`` unless told otherwise.
        per_pod: whether `processes` counts those of a pod, and not of all.
        one_without_gpus: whether a pod without GPUs has one process where nothing is said.
    """

    name: str
    options: Mapping[str, Option] = field(repr=False)
    processes: str = "--nproc-per-node"
    passes_local_rank: bool = False
    per_pod: bool = True
    one_without_gpus: bool = False


_TORCHRUN: Final = {
    "--nproc-per-node": Option(VALUE),
    "--nnodes": Option(VALUE),
    "--max-restarts": Option(VALUE),
    "--module": Option(FLAG),
    "-m": Option(FLAG),
    "--no-python": Option(FLAG),
    "--rdzv-backend": Option(VALUE, _KNOWS),
    "--rdzv-endpoint": Option(VALUE, _KNOWS),
    "--rdzv-id": Option(VALUE, _KNOWS),
    "--rdzv-conf": Option(VALUE, _KNOWS),
    "--node-rank": Option(VALUE, _KNOWS),
    "--master-addr": Option(VALUE, _KNOWS),
    "--master-port": Option(VALUE, _KNOWS),
    "--local-addr": Option(VALUE, _KNOWS),
    "--standalone": Option(FLAG, _WORLD),
    "--monitor-interval": Option(VALUE, _WATCH),
    "--start-method": Option(VALUE, "each process is a program of its own"),
    "--event-log-handler": Option(VALUE, _LOGS),
    "--role": Option(VALUE, "ROLE_RANK is RANK"),
    "--run-path": Option(FLAG, "the script runs as __main__ in an interpreter of its own"),
    "--log-dir": Option(VALUE, _LOGS),
    "--redirects": Option(VALUE, _LOGS),
    "-r": Option(VALUE, _LOGS),
    "--tee": Option(VALUE, _LOGS),
    "-t": Option(VALUE, _LOGS),
    "--local-ranks-filter": Option(VALUE, _LOGS),
    "--duplicate-stdout-filters": Option(VALUE, _LOGS),
    "--duplicate-stderr-filters": Option(VALUE, _LOGS),
    "--logs-specs": Option(VALUE, _LOGS),
    "--numa-binding": Option(VALUE, "processes run where the system puts them"),
    "--signals-to-handle": Option(VALUE, "SIGTERM is a drain, and SIGINT an end"),
    "--shutdown-timeout": Option(
        VALUE, "penstock run --grace-seconds says how long SIGTERM leaves"
    ),
    "--virtual-local-rank": Option(FLAG, "each process sees all devices: choose by LOCAL_RANK"),
    "--use-env": Option(FLAG, "LOCAL_RANK is in the environment"),
}
_DLROVER: Final = {
    **_TORCHRUN,
    "--network-check": Option(FLAG, _CHECK),
    "--comm-perf-test": Option(FLAG, _CHECK),
    "--precheck": Option(VALUE, _CHECK),
    "--exclude-straggler": Option(FLAG, "slow workers get smaller shares in elastic.session alone"),
    "--node-unit": Option(VALUE),
    "--auto-config": Option(FLAG),
    "--auto-tunning": Option(FLAG, "batch size and learning rate are the program's"),
    "--save-at-breakpoint": Option(FLAG, _SAVES),
    "--ucp-device-type": Option(VALUE, _SAVES),
    "--accelerator": Option(VALUE, "the pod's limits say which accelerator it has"),
    "--training-port": Option(VALUE, _KNOWS),
    "--numa-affinity": Option(FLAG, "processes run where the system puts them"),
    "--membind-policy": Option(VALUE, "processes run where the system puts them"),
}
_ACCELERATE: Final = {
    "--num-processes": Option(VALUE),
    "--num-machines": Option(VALUE),
    "--max-restarts": Option(VALUE),
    "--module": Option(FLAG),
    "-m": Option(FLAG),
    "--no-python": Option(FLAG),
    "--mixed-precision": Option(VALUE),
    "--gradient-accumulation-steps": Option(VALUE),
    "--gradient-clipping": Option(VALUE),
    "--dynamo-backend": Option(VALUE),
    "--dynamo-mode": Option(VALUE),
    "--num-cpu-threads-per-process": Option(VALUE),
    "--cpu": Option(FLAG),
    "--debug": Option(FLAG),
    "--multi-gpu": Option(FLAG, _WORLD),
    "--same-network": Option(FLAG, _KNOWS),
    "--machine-rank": Option(VALUE, _KNOWS),
    "--main-process-ip": Option(VALUE, _KNOWS),
    "--main-process-port": Option(VALUE, _KNOWS),
    "--rdzv-backend": Option(VALUE, _KNOWS),
    "--rdzv-conf": Option(VALUE, _KNOWS),
    "--monitor-interval": Option(VALUE, _WATCH),
    "--role": Option(VALUE, "ROLE_RANK is RANK"),
    "--log-dir": Option(VALUE, _LOGS),
    "--tee": Option(VALUE, _LOGS),
    "-t": Option(VALUE, _LOGS),
    "--quiet": Option(FLAG, _LOGS),
    "-q": Option(FLAG, _LOGS),
    "--gpu-ids": Option(VALUE, "the pod's limits say which devices it has"),
    "--enable-cpu-affinity": Option(FLAG, "processes run where the system puts them"),
}
_DEEPSPEED: Final = {
    "--num-gpus": Option(VALUE),
    "--num-nodes": Option(VALUE, _KNOWS),
    "--module": Option(FLAG),
    "--no-python": Option(FLAG),
    "--no-local-rank": Option(FLAG, "LOCAL_RANK is in the environment"),
    "--hostfile": Option(VALUE, _KNOWS),
    "-H": Option(VALUE, _KNOWS),
    "--include": Option(VALUE, _KNOWS),
    "-i": Option(VALUE, _KNOWS),
    "--exclude": Option(VALUE, _KNOWS),
    "-e": Option(VALUE, _KNOWS),
    "--master-addr": Option(VALUE, _KNOWS),
    "--master-port": Option(VALUE, _KNOWS),
    "--node-rank": Option(VALUE, _KNOWS),
    "--no-ssh": Option(FLAG, _KNOWS),
    "--launcher": Option(VALUE, _KNOWS),
    "--launcher-args": Option(VALUE, _KNOWS),
    "--bind-cores-to-rank": Option(FLAG, "processes run where the system puts them"),
    "--enable-each-rank-log": Option(VALUE, _LOGS),
}
_NOT_CARRIED: Final = {
    "--config-file": "a file that is not read here: write out what it says (--num_processes=8, "
    "--mixed_precision=bf16)",
    "--use-deepspeed": "hand a DeepSpeedPlugin to Accelerator() in the program",
    "--use-fsdp": "hand a FullyShardedDataParallelPlugin to Accelerator() in the program",
    "--use-megatron-lm": "hand a MegatronLMPlugin to Accelerator() in the program",
    "--use-parallelism-config": "hand a ParallelismConfig to Accelerator() in the program",
    "--tpu": "there are no TPUs here",
    "--autotuning": "a search over many runs is no training job",
}
"""Options that nothing here stands for, without which the program would be another one."""

ENVIRONMENT: Final = {
    "--mixed-precision": "ACCELERATE_MIXED_PRECISION",
    "--gradient-accumulation-steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "--gradient-clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "--dynamo-backend": "ACCELERATE_DYNAMO_BACKEND",
    "--dynamo-mode": "ACCELERATE_DYNAMO_MODE",
    "--num-cpu-threads-per-process": "OMP_NUM_THREADS",
    "--cpu": "ACCELERATE_USE_CPU",
    "--debug": "ACCELERATE_DEBUG_MODE",
}
"""How accelerate tells its options to the program."""

_LAUNCH: Final = Launcher("torch.distributed.launch", _TORCHRUN, passes_local_rank=True)
_RUN: Final = Launcher("torchrun", _TORCHRUN)
_DLROVER_RUN: Final = Launcher("dlrover-run", _DLROVER)
_ACCELERATE_LAUNCH: Final = Launcher(
    "accelerate launch", _ACCELERATE, "--num-processes", per_pod=False, one_without_gpus=True
)
_PROGRAMS: Final = {
    "torchrun": _RUN,
    "dlrover-run": _DLROVER_RUN,
    "deepspeed": Launcher("deepspeed", _DEEPSPEED, "--num-gpus", passes_local_rank=True),
}
_MODULES: Final = {
    "torch.distributed.run": _RUN,
    "torch.distributed.launch": _LAUNCH,
    "dlrover.trainer.torch.main": _DLROVER_RUN,
    "dlrover.trainer.torch.elastic_run": _DLROVER_RUN,
    "accelerate.commands.launch": _ACCELERATE_LAUNCH,
}
_REFUSED: Final = ("mpirun", "mpiexec", "horovodrun", "srun", "flux")


@dataclass(frozen=True)
class Launch:
    """A launcher's command line, taken apart.

    Attributes:
        launcher: the launcher.
        given: its options with their values, in order; a flag has None.
        script: index of the first word that is the program's.
    """

    launcher: Launcher
    given: tuple[tuple[str, str | None], ...]
    script: int

    def value(self, *names: str) -> str | None:
        """The last value that an option was given."""
        found = [value for name, value in self.given if name in names]
        return found[-1] if found else None

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.given)


def launch_of(words: Sequence[str]) -> Launch | None:
    """The launcher that a command line begins with; None where it is none.

    Raises:
        ValueError: it is one that has no correspondence, has an option that is not known, or no
            program; the message says what to do.
    """
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if name in _REFUSED:
        raise ValueError(f"{name}: programs of MPI and other launchers have no correspondence here")
    if name in _PROGRAMS:
        return _parsed(_PROGRAMS[name], words, 1)
    if name == "accelerate" and words[1:2] == ["launch"]:
        return _parsed(_ACCELERATE_LAUNCH, words, 2)
    if name.startswith("python"):
        for at, word in enumerate(words[1:], 1):
            if word == "-m":
                module = words[at + 1] if at + 1 < len(words) else ""
                known = _MODULES.get(module)
                return _parsed(known, words, at + 2) if known else None
            if not word.startswith("-"):
                return None
    return None


def hidden_launcher(words: Sequence[str]) -> str:
    """A launcher that stands further back in a command line; empty where there is none."""
    for word in words[1:]:
        if word.endswith(".py"):
            return ""
        name = PurePosixPath(word).name
        if name in _PROGRAMS or name in _REFUSED or word in _MODULES:
            return name
    return ""


def _parsed(launcher: Launcher, words: Sequence[str], at: int) -> Launch:
    given: list[tuple[str, str | None]] = []
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        spelt, sign, value = words[at].partition("=")
        name = spelt if not spelt.startswith("--") else spelt.replace("_", "-")
        at += 1
        if name in _NOT_CARRIED:
            raise ValueError(f"{launcher.name} {spelt}: {_NOT_CARRIED[name]}")
        option = launcher.options.get(name)
        if option is None and not sign:
            raise ValueError(
                f"{launcher.name} {spelt}: an option that is not known here: leave it out, or "
                f"write it as {spelt}=VALUE"
            )
        if option is not None and option.takes_value and not sign:
            if at == len(words):
                raise ValueError(f"{launcher.name} {spelt}: a value must follow")
            value, sign = words[at], "="
            at += 1
        given.append((name, value if sign else None))
    if at < len(words) and words[at] == "--":
        at += 1
    if at >= len(words):
        raise ValueError(f"{launcher.name}: no script follows")
    return Launch(launcher, tuple(given), at)
