"""The command ``penstock brain``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.base import ports


class Access(StrEnum):
    """What a token lets its holder do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


brain = typer.Typer(
    help="Run the Brain: job history, plans, and the REST API.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@brain.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 is any free one.", min=0, max=65535)
    ] = ports.BRAIN,
    database: Annotated[
        str,
        typer.Option(
            envvar="PENSTOCK_BRAIN_DATABASE",
            help="sqlite+aiosqlite:///FILE or postgresql+asyncpg://USER:PASSWORD@HOST/NAME.",
        ),
    ] = "sqlite+aiosqlite:///penstock-brain.sqlite",
    config: Annotated[Path | None, typer.Option(help="Configuration file, YAML or JSON.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, over the file: administrator.interval_seconds=5."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Connect to the cluster of this file; else of $KUBECONFIG, unless --auth is "
            "tokens or none."
        ),
    ] = None,
    in_cluster: Annotated[
        bool, typer.Option("--in-cluster", help="Connect to the cluster that this runs in.")
    ] = False,
    auth: Annotated[
        str | None,
        typer.Option(
            help="kubernetes (with a cluster, the default then), tokens (of the configuration), or "
            "none (loopback only).",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with one more API token, for whoever started this: it may do everything."
        ),
    ] = None,
    require_audience: Annotated[
        bool,
        typer.Option(
            "--require-audience",
            help="With --auth=kubernetes: take tokens with the audience penstock-brain only, none "
            "that the API server takes too.",
        ),
    ] = False,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="Serve over TLS, with this certificate (PEM; renewed when replaced)."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM, unencrypted).")] = None,
    plain_port: Annotated[
        int | None,
        typer.Option(
            help="With --tls-certificate: a port without TLS beside, for trainers of an earlier "
            "release.",
            min=0,
            max=65535,
        ),
    ] = None,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the Brain until SIGTERM. Prints its address on standard output when it is ready."""
    if context.invoked_subcommand is not None:
        return
    # Imported late: the list of commands must not need the web framework.
    from penstock.api.start import start

    raise typer.Exit(
        start(
            host=host,
            port=port,
            database=database,
            config=config,
            settings=setting or [],
            kubeconfig=kubeconfig,
            in_cluster=in_cluster,
            auth=auth,
            token_file=token_file,
            requires_audience=require_audience,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            plain_port=plain_port,
            log_format=log_format,
            log_level=log_level,
        )
    )


@brain.command("token")
def token(
    name: Annotated[str, typer.Argument(help="Who will use it: the name in the audit.")],
    access: Annotated[Access, typer.Option(help="What it lets its holder do.")] = Access.READ,
) -> None:
    """Make an API token, and the lines of the configuration that let it in."""
    from penstock.api.auth.tokens import new_token

    made, digest = new_token()
    typer.echo(f"{made}\n", err=False)
    typer.echo("Keep it: it is not stored. Add this to the configuration:\n", err=True)
    typer.echo(f"tokens:\n  - name: {name}\n    access: {access}\n    sha256: {digest}", err=True)
