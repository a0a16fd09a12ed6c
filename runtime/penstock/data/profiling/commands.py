"""``penstock profile`` and ``penstock whatif``: where the time goes, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from penstock.base.replay_hours import MOST_HOURS

if TYPE_CHECKING:
    from penstock.throughput.errors import ProfileError
    from penstock.throughput.profiles.profile import Profile


profile = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@profile.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Say where a PyTorch program's time goes: penstock profile -- python train.py",
)
def _profile(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the profile is written.")
    ] = Path("penstock-profile.json"),
    batches: Annotated[
        int, typer.Option(min=5, max=10_000, help="Batches that are measured, at most.")
    ] = 60,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the program when its profile is there.")
    ] = False,
    storage: Annotated[
        bool,
        typer.Option(
            help="Drop up to 200 files of a process from memory at the end, and read some again."
        ),
    ] = True,
) -> None:
    import contextlib
    import os
    import sys

    from penstock.data.profiling import profile_file
    from penstock.data.profiling.launching import Wanted, run_profiled
    from penstock.data.profiling.report import report
    from penstock.throughput.errors import ProfileError

    if (why_not := _unwritable(output)) is not None:
        typer.echo(f"penstock profile: --output {output}: {why_not}", err=True)
        raise typer.Exit(2)
    failed: list[ProfileError] = []

    def say(text: str) -> None:
        """To whoever reads, while the program runs; nobody need."""
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.write(text)
                sys.stderr.flush()

    def progress(text: str) -> None:
        say(f"penstock profile: {text}\n")

    def tell(found: Profile | ProfileError) -> None:
        if isinstance(found, ProfileError):
            failed.append(found)
            say(f"penstock profile: {found}\n")
            if output.exists():
                say(f"penstock profile: {output} is of an earlier run\n")
            return
        say(f"\n{report(found)}")
        try:
            profile_file.write(output, found)
            say(f"\nwritten to {output}; ask it: penstock whatif {output} --cores 2..16\n")
        except OSError as error:
            failed.append(ProfileError(str(error)))
            why = f"{error.strerror}: {output} is as it was; name another file with --output"
            say(f"penstock profile: the profile cannot be written: {why}\n")

    try:
        wanted = Wanted(batches, stop, storage)
        code = run_profiled(command, wanted, tell, os.environ, progress)
    except ProfileError as error:
        typer.echo(f"penstock profile: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"penstock profile: {command[0]} cannot be started: {error.strerror}", err=True)
        if command[0].endswith(".py"):
            typer.echo(f"penstock profile: say: penstock profile -- python {command[0]}", err=True)
        raise typer.Exit(127) from None
    raise typer.Exit(code or (1 if failed else 0))


def _ask_brain(*words: str, as_json: bool) -> NoReturn:
    """By the command that speaks to the Brain: no room has another's commands."""
    import subprocess
    import sys

    form = ["-o", "json"] if as_json else []
    command = [sys.executable, "-m", "penstock.cli", *words, *form]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _unwritable(output: Path) -> str | None:
    """Why a profile cannot be written there, before a program has run for it."""
    import os

    if output.is_dir():
        return "is a folder: name a file"
    if not output.parent.is_dir():
        return f"there is no folder {output.parent}"
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        return "cannot be written: name another file"
    return None


def whatif(
    file: Annotated[
        Path | None, typer.Argument(help="A profile, as penstock profile writes it.")
    ] = None,
    submit: Annotated[
        Path | None,
        typer.Option(help="A job's manifest instead: what finished jobs like it took and cost."),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(help="Or nodes of the cluster, +4 or -2: what jobs would do then."),
    ] = None,
    node_shape: Annotated[
        str | None, typer.Option(help="Of these nodes: cpu=96,memory=768Gi,gpu=8.")
    ] = None,
    fail_node: Annotated[
        str | None, typer.Option(help="Or a node of the cluster that would be gone.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Or a placement policy: what the jobs of last week would have waited."),
    ] = None,
    hours: Annotated[
        int | None, typer.Option(min=1, max=MOST_HOURS, help="With --policy: how far back. 168.")
    ] = None,
    cores: Annotated[
        str | None, typer.Option(help="Cores of the training pod: 8, or 2..32 for a sweep.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="Loader workers; default: as they were, but no fewer than cores."),
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Memory for files: 8GiB, or 0..64GiB for a sweep.")
    ] = None,
    cache_policy: Annotated[
        str, typer.Option(help="minio (nothing is replaced) or lru, where not all files fit.")
    ] = "minio",
    storage: Annotated[
        str | None, typer.Option(help="Speed of the storage: 500MB/s, or a range.")
    ] = None,
    data_workers: Annotated[
        str | None, typer.Option(help="Data workers: 2, or 0..8 for a sweep.")
    ] = None,
    data_worker_cores: Annotated[
        float, typer.Option(min=0.1, max=1024, help="Cores of each of them.")
    ] = 1.0,
    cold_data_workers: Annotated[
        bool,
        typer.Option(
            "--cold-data-workers",
            help="As if the nodes of data workers had no file in memory that the program reads.",
        ),
    ] = False,
    overlap_copies: Annotated[
        bool,
        typer.Option(
            "--overlap-copies",
            help="As if copies to a device ran beside the training: pinned, non_blocking.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the rates (.png, .svg, .pdf).")] = None,
) -> None:
    """What a profiled program would do with other resources, a job cost, or jobs on other nodes."""
    from penstock.data.profiling import profile_file, questions
    from penstock.throughput.errors import ProfileError

    of_cluster = {
        "--nodes": nodes,
        "--node-shape": node_shape,
        "--fail-node": fail_node,
        "--policy": policy,
        "--hours": hours,
    }
    asked_of_cluster = [f"{name}={text}" for name, text in of_cluster.items() if text is not None]
    if sum((file is not None, submit is not None, bool(asked_of_cluster))) > 1:
        said = "ask of one thing: a profile, --submit, --nodes, --fail-node or --policy"
        typer.echo(f"penstock whatif: {said}", err=True)
        raise typer.Exit(2)
    if submit is not None:
        _ask_brain("forecast", "-f", str(submit), as_json=as_json)
    if asked_of_cluster:
        _ask_brain("capacity", *asked_of_cluster, as_json=as_json)
    if file is None:
        said = "name a profile, a manifest with --submit, or --nodes, --fail-node or --policy"
        typer.echo(f"penstock whatif: {said}", err=True)
        raise typer.Exit(2)
    axes = {
        "cores": cores,
        "workers": workers,
        "cache": cache,
        "storage": storage,
        "data workers": data_workers,
    }
    try:
        found = profile_file.read(file)
        if cold_data_workers:
            found = questions.with_cold_data_workers(found)
        asked = {name: text for name, text in axes.items() if text is not None}
        points = questions.ask(
            found, asked, cache_policy, data_worker_cores, overlap_copies=overlap_copies
        )
        questions.show(found, list(asked), points, as_json=as_json)
        if plot is not None:
            questions.draw(found, list(asked), points, plot)
    except ProfileError as error:
        typer.echo(f"penstock whatif: {error}", err=True)
        raise typer.Exit(2) from None
