"""What every command that looks at a cluster shares: its options, its connections, its errors.

``@connected`` adds the options to a command's own and hands it a `Session` in their place. An error
that was meant to be becomes one line on standard error and the exit code of `penstock.cli.exits`;
so does a fault of the program, which says how to see the traceback.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, get_type_hints

import typer

from penstock.cli import terminal
from penstock.cli.exits import INTERRUPTED, Exit, UsageError, exit_for
from penstock.cli.output import Format, console, plain, written

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.client import BrainClient, Penstock
    from penstock.client.kubernetes.cluster_client import ClusterClient
    from penstock.client.kubernetes.kubeconfig import Json

P = ParamSpec("P")
_PANEL: Final = "Connection and output"
BRAIN_PATIENCE_SECONDS: Final = 8.0
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to standard output fails with, where it leads to a file."""

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]

SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "namespace": (
        Annotated[
            str | None,
            typer.Option(
                "--namespace", "-n", rich_help_panel=_PANEL, help="Namespace; else the context's."
            ),
        ],
        None,
    ),
    "context": (
        Annotated[
            str | None,
            typer.Option("--context", rich_help_panel=_PANEL, help="Context of the kubeconfig."),
        ],
        None,
    ),
    "kubeconfig": (
        Annotated[
            Path | None,
            typer.Option(
                "--kubeconfig", rich_help_panel=_PANEL, help="Kubeconfig; else $KUBECONFIG."
            ),
        ],
        None,
    ),
    "brain": (
        Annotated[
            str | None,
            typer.Option(
                "--brain",
                rich_help_panel=_PANEL,
                help="Address of the Brain; else $PENSTOCK_BRAIN_URL, else it is found.",
            ),
        ],
        None,
    ),
    "system_namespace": (
        Annotated[
            str | None,
            typer.Option(
                "--system-namespace",
                rich_help_panel=_PANEL,
                help="Where to find the Brain; else $PENSTOCK_SYSTEM_NAMESPACE or penstock-system.",
            ),
        ],
        None,
    ),
    "brain_account": (
        Annotated[
            str | None,
            typer.Option(
                "--brain-account",
                metavar="NAMESPACE/NAME",
                rich_help_panel=_PANEL,
                help="ServiceAccount to call a found Brain as; else $PENSTOCK_BRAIN_ACCOUNT.",
            ),
        ],
        None,
    ),
    "output": (
        Annotated[
            Format,
            typer.Option("--output", "-o", rich_help_panel=_PANEL, help="Form of the output."),
        ],
        Format.TABLE,
    ),
    "debug": (
        Annotated[
            bool,
            typer.Option("--debug", rich_help_panel=_PANEL, help="Show the traceback of an error."),
        ],
        False,
    ),
}

"""The options that every command has, by name: how each is spelt, and its default."""


@dataclass
class Session:
    """One run of one command."""

    namespace_option: str | None
    context: str | None
    kubeconfig: Path | None
    brain_url: str | None
    system_namespace: str | None
    brain_account: str | None
    output: Format
    debug: bool

    @functools.cached_property
    def penstock(self) -> Penstock:
        """The SDK, connected as the options say.

        Raises:
            KubeconfigError: There is no kubeconfig, or it does not say how to reach a cluster.
        """
        from penstock.client import Penstock, RetryPolicy

        return Penstock(
            kubeconfig=self.kubeconfig,
            context=self.context,
            namespace=self.namespace_option,
            brain_url=self.brain_url,
            brain_account=self.brain_account,
            system_namespace=self.system_namespace,
            retry=RetryPolicy(total_seconds=BRAIN_PATIENCE_SECONDS, attempt_seconds=5.0),
        )

    @property
    def cluster(self) -> ClusterClient:
        return self.penstock.cluster

    @property
    def namespace(self) -> str:
        return self.penstock.namespace

    @property
    def brain(self) -> BrainClient:
        """The Brain.

        Raises:
            BrainAddressError: Nobody said where the Brain is, and it could not be found.
        """
        return self.penstock.brain

    @functools.cached_property
    def console(self) -> Console:
        return console()

    def job(self, name: str) -> Json:
        """A job as the cluster has it.

        Raises:
            ObjectNotFoundError: There is none (404).
        """
        from penstock.client.kubernetes import resources

        return self.cluster.send(resources.get(resources.JOBS, name, self.namespace))

    def show(self, document: Any, table: Callable[[], RenderableType]) -> None:
        """Print a document, or the table that stands for it."""
        if self.output is Format.TABLE:
            self.console.print(table())
        else:
            sys.stdout.write(written(document, self.output))

    def did(self, document: Json, what: str) -> None:
        """Print an object that was changed: for people, what was done to it in one line."""
        if self.output is Format.TABLE:
            kind, name = document.get("kind", ""), document["metadata"]["name"]
            typer.echo(f"{kind.lower()}/{name} {what}")
        else:
            document["metadata"].pop("managedFields", None)
            sys.stdout.write(written(document, self.output))

    def note(self, text: str) -> None:
        """Something to know beside the output, on standard error."""
        typer.echo(f"penstock: {plain(text)}", err=True)

    def close(self) -> None:
        """Close whatever was opened."""
        if "penstock" in self.__dict__:
            self.penstock.close()


def connected(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """A command that takes a Session first becomes one that takes the shared options last."""
    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [each.replace(annotation=hints[each.name]) for each in own]
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in SHARED.items()
    ]

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        options = {name: given.pop(name) for name in SHARED}
        session = Session(
            namespace_option=options["namespace"],
            context=options["context"],
            kubeconfig=options["kubeconfig"],
            brain_url=options["brain"],
            system_namespace=options["system_namespace"],
            brain_account=options["brain_account"],
            output=options["output"],
            debug=options["debug"],
        )
        try:
            _in_unicode(given)
            with terminal.termination_ends_it():
                command(session, *args, **given)
                sys.stdout.flush()  # a full disk is told of here, not when Python ends
        except (typer.Exit, typer.BadParameter, BrokenPipeError):
            raise
        except typer.Abort as error:  # at a prompt: Ctrl-C, or the end of the input
            typer.echo(err=True)
            at_prompt = isinstance(error.__context__, KeyboardInterrupt)
            raise typer.Exit(INTERRUPTED if at_prompt else Exit.FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if session.debug:
                raise
            raise typer.Exit(tell(error)) from None
        finally:
            session.close()

    # `typer` reads it, functions do not declare it.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__  # typer would read the command's own options
    return run


def _in_unicode(given: dict[str, Any]) -> None:
    """Refuse arguments whose bytes are no text where they were typed: nothing can name them."""
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            try:
                str(each).encode()
            except UnicodeEncodeError as error:
                shown = os.fsencode(str(each)).decode(errors="replace")
                raise UsageError(f"{name} {shown}: not text in this locale's encoding") from error


def tell(error: Exception) -> Exit:
    """Say on standard error what went wrong, in one line, and return the exit code."""
    code = exit_for(error)
    if code is None and isinstance(error, OSError) and error.filename:
        code = Exit.USAGE
        said = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif code is None and isinstance(error, OSError) and error.errno in _NO_ROOM:
        code = Exit.FAILED
        said = f"the output cannot be written: {error.strerror}"
        terminal.forget_output()
    elif code is None:
        code = Exit.FAILED
        said = (
            f"a fault of Penstock itself: {type(error).__name__}: {error}; "
            "run the same with --debug and report what it shows"
        )
    else:
        said = str(error)
    typer.echo(f"penstock: {plain(' '.join(said.split()))}", err=True)
    return code


__all__ = ["JobName", "Session", "UsageError", "connected", "tell"]
