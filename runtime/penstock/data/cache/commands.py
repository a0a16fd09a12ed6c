"""``penstock cache run``, ``stat`` and ``drop``: the cache of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

cache = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Keep the files that programs on this node read again and again.",
)

Socket = Annotated[
    str | None,
    typer.Option("--socket", help="Where the daemon is: a path, or @NAME; default: the node's."),
]


@cache.command()
def run(
    memory: Annotated[str, typer.Option(help="Memory for files, such as 40GiB.")],
    paths: Annotated[
        list[str], typer.Option("--paths", help="Folders whose files are kept; any number.")
    ],
    more_paths: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR]...", help="Further folders.")
    ] = None,
    socket: Socket = None,
    largest: Annotated[
        str, typer.Option(help="Files that are larger are kept in ranges of 1 MiB.")
    ] = "64MiB",
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT where caches of other nodes are served.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="HOST:PORT by which they call this one; default: --listen.")
    ] = None,
    peers: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of all of them, by commas; a name may stand for several."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="What all of them hold, and prove to each other.")
    ] = None,
    answer_seconds: Annotated[
        float,
        typer.Option(min=0.001, max=60, help="Another node's time to answer, but for the bytes."),
    ] = 0.05,
    private: Annotated[
        bool, typer.Option("--private", help="Serve programs of this user only.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address of health and metrics.")] = "127.0.0.1",
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Their port; 0: a free one; without it, none."),
    ] = None,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run the cache of this node, until told to end."""
    import logging

    from penstock.base.logs import stderr_handler
    from penstock.data.cache.locations import cache_socket, checked_path, parse_memory
    from penstock.data.cache.node import process

    root = logging.getLogger("penstock")
    try:
        root.handlers[:] = [stderr_handler(log_format)]
        root.setLevel(logging.INFO)
        if peers and listen is None:
            raise ValueError("--peers: goes with --listen")
        options = process.DaemonOptions(
            place=socket or cache_socket(),
            memory=parse_memory(memory),
            paths=tuple(dict.fromkeys(checked_path(one) for one in [*paths, *(more_paths or ())])),
            largest=parse_memory(largest),
            listen=listen,
            name=name,
            private=private,
            metrics=None if metrics_port is None else (host, metrics_port),
            answer_seconds=answer_seconds,
            peers=process.checked_peers(peers or ()),
            token=token_file.read_text(encoding="utf-8").strip() if token_file else "",
        )
        process.run(options)
    except (ValueError, OSError, process.CacheRunError) as error:
        raise typer.BadParameter(str(error)) from error


@cache.command()
def stat(
    socket: Socket = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Say, for each path, what was found in the cache, and what it did not see."""
    import json

    from penstock.data.cache import messages

    report = _command(socket, messages.STAT)
    typer.echo(json.dumps(report) if as_json else _table(report))


@cache.command()
def drop(
    path: Annotated[
        str | None, typer.Argument(help="One of the cache's paths; default: all of them.")
    ] = None,
    socket: Socket = None,
) -> None:
    """Give up what is held. Files are read from storage again, and kept again."""
    from penstock.data.cache import messages

    report = _command(socket, messages.DROP, path)
    held = sum(one["held_bytes"] for one in report.values())
    typer.echo(f"dropped; {held} bytes are held")


def _command(place: str | None, kind: int, *values: Any) -> dict[str, dict[str, Any]]:
    from penstock.data.cache.client import CacheClient, CacheError
    from penstock.data.cache.locations import cache_socket

    try:
        report: dict[str, dict[str, Any]] = CacheClient(place or cache_socket()).command(
            kind, *values
        )
    except CacheError as error:
        typer.echo(f"penstock cache: {error}", err=True)
        raise typer.Exit(1) from None
    return report


def _table(report: dict[str, dict[str, Any]]) -> str:
    from penstock.data.cache.report import seen_ratio

    lines = []
    for path, one in report.items():
        reads = one["seen"] + one["unseen"]
        found = one["hits"] / one["seen"] if one["seen"] else 0.0
        remote = f"{one['remote_hits']} on other nodes"
        lines += [
            path,
            f"  held        {_mib(one['held_bytes'])}",
            f"  found       {one['hits']} of {one['seen']} reads ({found:.1%}), {remote}",
            f"  storage     {one['misses']} reads, {_mib(one['miss_bytes'])}",
            f"  not seen    {one['unseen']} of {reads} reads (seen: {seen_ratio(one):.1%})",
        ]
        if one["wanted_bytes"] is not None:
            quota = one["quota_bytes"]
            right = "no quota" if quota is None else f"a quota of {_mib(quota)}"
            lines.append(f"  wants       {_mib(one['wanted_bytes'])}, has {right}: {one['why']}")
            waits, spared = one["waiting"], one["spared_per_gib"]
            lines.append(
                f"  waits       {waits:.2f} s for 1 s of work; a GiB spares {spared:.2f} s"
            )
        elif one["seen"]:
            lines.append(f"  wants       {one['why']}")
        if one["refused_answers"]:
            lines.append(f"  refused     {one['refused_answers']} answers of other nodes")
    return "\n".join(lines)


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"
