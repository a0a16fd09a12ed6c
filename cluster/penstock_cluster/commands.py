"""The command ``penstock-cluster``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = 8480
DEFAULT_FOLDER: Final = Path(".penstock-cluster")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the script; the exit status."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        # Until the cluster listens to signals there is nothing to end, and Python's own handler
        # would end an import with a traceback, or be swallowed by one.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _up(_parser().parse_args(arguments))
    finally:
        signal.signal(signal.SIGINT, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock-cluster", description="A Kubernetes cluster in one process, without Docker."
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    about = "Run a cluster in the foreground, until Ctrl-C."
    up = commands.add_parser("up", help=about, description=about)
    up.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="port of the API server; 0 takes a free one (%(default)s)",
    )
    up.add_argument(
        "--kubeconfig",
        type=Path,
        default=DEFAULT_FOLDER / "kubeconfig",
        help="where to write the kubeconfig (%(default)s)",
    )
    up.add_argument(
        "--pods-folder",
        type=Path,
        default=DEFAULT_FOLDER / "pods",
        help="where pods keep their files and logs (%(default)s)",
    )
    up.add_argument(
        "--database", type=Path, help="SQLite file that keeps the objects; default: none does"
    )
    up.add_argument(
        "--nodes", type=Path, help="YAML file with the nodes; default: one, with what this has"
    )
    up.add_argument(
        "--client-certificate",
        action="store_true",
        help="the kubeconfig shows a client certificate and no token, as kubeadm's and kind's",
    )
    up.add_argument("--rbac", action="store_true", help="enforce roles and bindings")
    up.add_argument(
        "--enforce-cpu-limits",
        action="store_true",
        help="pods get no more CPU than their limits, also below a core",
    )
    return parser


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for: that takes as long as all the rest until then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        _say(f"penstock-cluster {version('penstock-cluster')}")
        parser.exit()


def _up(chosen: argparse.Namespace) -> int:
    import asyncio

    from penstock_cluster.cluster import ClusterOptions
    from penstock_cluster.foreground import error_line, run_cluster
    from penstock_cluster.nodes import NodeDeclarationError, read_nodes_file

    try:
        options = ClusterOptions(
            nodes=read_nodes_file(chosen.nodes) if chosen.nodes else (),
            folder=chosen.pods_folder,
            database=chosen.database,
            port=chosen.port,
            client_certificate=chosen.client_certificate,
            rbac=chosen.rbac,
            enforces_cpu_limits=chosen.enforce_cpu_limits,
        )
        asyncio.run(run_cluster(options, chosen.kubeconfig, _say))
    except (OSError, OverflowError, NodeDeclarationError) as error:
        print(f"penstock-cluster: {error_line(error)}", file=sys.stderr)  # noqa: T201  the command's answer
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the command's answer
