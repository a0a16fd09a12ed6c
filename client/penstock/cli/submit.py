"""``penstock submit``: a job from a manifest, or from flags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.enums import Optimize, Strategy
from penstock.cli.session import Session, UsageError, connected
from penstock.cli.suspend import Timeout, Wait
from penstock.crds.group import ELASTICJOB_KIND, SCALE_KIND

if TYPE_CHECKING:
    from penstock.client.kubernetes.resources import ClusterCall

_FLAGS: Final = "Without a manifest"
Count = int | None

Json = dict[str, Any]


@connected
def submit_(
    session: Session,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="The training program, without a manifest."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--filename",
            "-f",
            help="Manifest, also of another system (penstock convert); - reads standard input.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", rich_help_panel=_FLAGS, help="Name of the job.")
    ] = "",
    image: Annotated[
        str, typer.Option("--image", rich_help_panel=_FLAGS, help="Image of the workers.")
    ] = "",
    script: Annotated[
        str,
        typer.Option(
            "--script", rich_help_panel=_FLAGS, help="Python script to train with, in the image."
        ),
    ] = "",
    workers: Annotated[
        Count,
        typer.Option(
            min=1, rich_help_panel=_FLAGS, help="Fix the number; else the Brain decides it."
        ),
    ] = None,
    min_workers: Annotated[
        Count, typer.Option(min=1, rich_help_panel=_FLAGS, help="Least number of workers.")
    ] = None,
    max_workers: Annotated[
        Count, typer.Option(min=1, rich_help_panel=_FLAGS, help="Greatest number of workers.")
    ] = None,
    data_workers: Annotated[
        Count, typer.Option(min=0, rich_help_panel=_FLAGS, help="Fix the number of data workers.")
    ] = None,
    request: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_FLAGS, help="Of each worker: cpu=2, nvidia.com/gpu=1; ..."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_FLAGS, help="Of the whole job: cpu=32, memory=64Gi; ..."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_FLAGS, help="NAME=VALUE, for the workers; ..."),
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(rich_help_panel=_FLAGS, help="How the workers train together.")
    ] = Strategy.ALL_REDUCE,
    optimize: Annotated[
        Optimize, typer.Option(rich_help_panel=_FLAGS, help="What the Brain may do.")
    ] = Optimize.AUTO,
    model: Annotated[
        str, typer.Option(rich_help_panel=_FLAGS, help="Model, to find similar past jobs.")
    ] = "",
    dataset: Annotated[
        str, typer.Option(rich_help_panel=_FLAGS, help="Dataset, to find similar past jobs.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the cluster check the job, and create none.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = 86_400.0,
) -> None:
    """Submit a job from a manifest (-f job.yaml) or from flags.

    penstock submit --name digits --image penstock/examples --max-workers 4 -- python train.py
    """
    from penstock.cli.job_from_flags import Flags, manifest

    flags = Flags(
        name=name,
        image=image,
        command=[*(["python", script] if script else []), *(command or [])],
        strategy=strategy,
        optimize=optimize,
        workers=workers,
        min_workers=min_workers,
        max_workers=max_workers,
        data_workers=data_workers,
        requests=request or (),
        limits=limit or (),
        environment=env or (),
        model=model,
        dataset=dataset,
    )
    if file is not None:
        if given := flags.given():
            raise UsageError(
                f"a manifest (-f) says it all: put {', '.join(given)} into it, or leave it out"
            )
        document = _converted(session, file)
    else:
        if missing := flags.missing():
            raise UsageError(f"give a manifest with -f, or also {', '.join(missing)}")
        document = manifest(flags)
    if wait and document.get("kind") == SCALE_KIND:
        raise UsageError(f"{file}: --wait waits for the end of a job, and this becomes a Scale")
    try:
        call = _call(session, document, dry_run)
    except ValueError as error:
        raise UsageError(f"{file or 'the job'}: {error}") from error
    if session.namespace_option and f"/namespaces/{session.namespace}/" not in call.path:
        stated = document["metadata"]["namespace"]
        raise UsageError(f"{file}: metadata.namespace is {stated}, and --namespace says otherwise")
    created = session.cluster.send(call)
    if wait and not dry_run:
        session.note(f"elasticjob/{created['metadata']['name']} created; waiting for its end")
        session.penstock.namespace = created["metadata"]["namespace"]
        session.penstock.wait(created["metadata"]["name"], timeout_seconds=timeout)
        session.did(session.job(created["metadata"]["name"]), "succeeded")
        return
    session.did(created, "would be created (dry run)" if dry_run else "created")


def _without_version(document: Json) -> bool:
    """Whether it is a job that leaves out of which version it is: that is the server's to say."""
    return document.get("kind") == ELASTICJOB_KIND and "apiVersion" not in document


def _call(session: Session, document: Json, dry_run: bool) -> ClusterCall:
    """What is sent; a converted Scale is given the uid of its job."""
    from penstock.client import job_calls
    from penstock.client.kubernetes import resources

    if document.get("kind") != SCALE_KIND:
        return job_calls.submit(document, session.namespace, dry_run=dry_run)
    namespace = document["metadata"].get("namespace") or session.namespace
    reference = document["spec"]["jobRef"]
    job = session.cluster.send(resources.get(resources.JOBS, reference["name"], namespace))
    reference["uid"] = job["metadata"]["uid"]
    call = resources.create(resources.SCALES, document, namespace)
    return replace(call, query={**call.query, "dryRun": "All"}) if dry_run else call


def _converted(session: Session, file: Path) -> Json:
    """The one job of a manifest, converted if it is another system's, which is said in a line.

    Raises:
        UsageError: there is none, or more than one.
    """
    from penstock.cli.manifests import in_words, read
    from penstock.convert.convert import convert_all
    from penstock.convert.source import Outcome, RefusedError

    documents, where = [one.content for one in read([file])], in_words(file)
    if len(documents) == 1 and isinstance(documents[0], dict) and _without_version(documents[0]):
        return documents[0]
    found = convert_all(documents)
    if len(found) != 1:
        raise UsageError(
            f"{where}: one object expected, found {len(found)}: submit them one by one, or kubectl "
            "apply what penstock convert makes of them"
        )
    [(place, conversion)] = found
    if isinstance(conversion, RefusedError):
        raise UsageError(f"{where}: {conversion}")
    if conversion.result == documents[place]:
        if conversion.result.get("kind") != ELASTICJOB_KIND:
            said = repr(conversion.result.get("kind"))
            raise UsageError(f"{where}: kind: {ELASTICJOB_KIND} expected, got {said}")
        return conversion.result
    to_do = [note for note in conversion.notes if note.outcome is Outcome.TO_DO]
    others = len(conversion.notes) - len(to_do)
    session.note(
        f"{conversion.source} was converted: {others} fields dropped or changed, {len(to_do)} "
        f"things to look at: penstock convert -f {file} names them"
    )
    return conversion.result
