"""``penstock trainer``, ``penstock run`` and ``penstock ps``: the commands inside a job's pods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

run = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def trainer(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Where the journal lives; default: none outside a pod.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Outside a cluster: how many workers to expect.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="The same of parameter servers: begin only with this many.")
    ] = None,
    min_workers: Annotated[int | None, typer.Option(help="Train only with this many.")] = None,
    slots: Annotated[int | None, typer.Option(help="Micro-batches per step.")] = None,
    lease_seconds: Annotated[float | None, typer.Option(help="Term of a lease.")] = None,
    hang_seconds: Annotated[
        float | None, typer.Option(help="End a program that holds up the others for so long.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Outside a cluster: train without quarantined slots.")
    ] = False,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent", help="Outside a cluster: each worker runs a program of its own."
        ),
    ] = False,
    static_shares: Annotated[
        bool, typer.Option("--static-shares", help="Divide steps evenly whatever the speeds.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run a job's Elastic Trainer: who trains together, and who gets which samples."""
    from dataclasses import replace

    from penstock.job.settings import SettingsError, trainer_settings
    from penstock.trainer import service
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    chosen: dict[str, Any] = {
        "host": host,
        "port": port,
        "state_dir": state_dir,
        "workers": workers,
        "servers": servers,
        "min_workers": min_workers,
        "slots_per_step": slots,
        "lease_seconds": lease_seconds,
        "hang_seconds": hang_seconds,
        "skip_bad": skip_bad,
        "independent": independent,
        "static_shares": static_shares,
    }
    try:
        settings = replace(
            trainer_settings(), **{key: value for key, value in chosen.items() if value is not None}
        )
        code = service.run(settings)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(code)


def ps(
    trainer_address: Annotated[
        str | None, typer.Option("--trainer", help="HOST:PORT of the job's trainer.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that it may use, such as 2Gi; default: any.")
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(help="Time that SIGTERM leaves others to take over what it holds.")
    ] = 25.0,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run a parameter server: it holds a share of a model's parameters, and applies gradients."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a server does no linear algebra
    from penstock.job.settings import SettingsError
    from penstock.parameter_server.server import process
    from penstock.parameter_server.server.settings import server_settings
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
        settings = server_settings(trainer_address, host, memory, grace_seconds)
    except (SettingsError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    try:
        code = process.run(settings)
    except OSError as error:
        raise typer.BadParameter(
            f"--host: {settings.host}: {error.strerror}; nothing can listen there"
        ) from error
    raise typer.Exit(code)


@run.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Run a training program as one worker of a job: penstock run -- python train.py",
)
def _run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    trainer_address: Annotated[
        str | None, typer.Option("--trainer", help="HOST:PORT of the job's trainer.")
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(help="Time that SIGTERM leaves the program before it is killed.")
    ] = 25.0,
    data_workers: Annotated[
        int | None,
        typer.Option(help="Without a cluster: make the DataLoaders' batches in so many processes."),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(help="Without a cluster: do what a profile of penstock profile says helps."),
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(help="With --data-workers: ExactlyOnce, AtMostOnce or Unsharded."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="With --data-workers: leave out samples that raise.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    import asyncio
    import os

    from penstock.data import interception, standalone
    from penstock.data.hooked import hooked
    from penstock.data.protocol import InputOptions
    from penstock.job import settings
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    try:
        settings.check_bounds(grace_seconds=grace_seconds)
        if trainer_address is not None:
            address: str | None = settings.checked_address("--trainer", trainer_address)
        else:
            address = settings.trainer_address()
        identity = settings.pod_identity()
    except settings.SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    choice = None
    if apply is not None:
        if data_workers is not None:
            raise typer.BadParameter("--apply says how many data workers there are: leave out one")
        if address is not None:
            typer.echo("penstock run: in a job --apply is left to the scheduler", err=True)
        else:
            choice = _choice(apply, command)
            data_workers = choice.data_workers or None
    if data_workers is not None:
        options = ["--grace-seconds", str(grace_seconds), "--log-format", log_format]
        if trainer_address is not None:
            options += ["--trainer", trainer_address]
        try:
            wanted = InputOptions(guarantee=_guarantee(guarantee), skip_bad=skip_bad)
            arguments = [*options, "--", *command]
            raise typer.Exit(standalone.run(data_workers, wanted, arguments, choice))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    if guarantee is not None or skip_bad:
        raise typer.BadParameter(
            "--guarantee and --skip-bad go with --data-workers; a job says input.guarantee and "
            "input.skipBad in its spec"
        )
    hooks = hooked if address is None else interception.environment
    environ = hooks(os.environ)
    from penstock.trainer.agent import Agent  # the half of the time that the command takes to begin

    agent = Agent(identity, address, grace_seconds)
    raise typer.Exit(asyncio.run(agent.run(command, environ)))


def _choice(file: Path, command: list[str]) -> Any:
    """What a profile says of a program on this machine; it is told to the user."""
    from penstock.data import applying
    from penstock.data.cores import usable_cores
    from penstock.data.machine import machine
    from penstock.data.profiling.questions import read
    from penstock.throughput.errors import ProfileError

    try:
        profile = read(file)
        warning = applying.check(profile, command, machine())
    except ProfileError as error:
        raise typer.BadParameter(f"--apply: {error}") from error
    choice = applying.choose(profile, usable_cores())
    for text in (warning, choice.text):
        if text:
            typer.echo(f"penstock run: {text}", err=True)
    return choice


def _guarantee(text: str | None) -> Any:
    from penstock.base.enums import Guarantee

    try:
        return Guarantee(text or Guarantee.EXACTLY_ONCE)
    except ValueError:
        known = ", ".join(Guarantee)
        raise ValueError(f"--guarantee: {text}; must be one of {known}") from None
