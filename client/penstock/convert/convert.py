"""Which kinds of manifests are understood, and what is said of all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.convert.assembly import Conversion
from penstock.convert.source import RefusedError, Source
from penstock.convert.sources import (
    batch_job,
    dlrover_job,
    dlrover_scale_plan,
    one_pod,
    pytorch_job,
    tf_job,
    train_job,
)
from penstock.crds.group import ELASTICJOB_KIND, GROUP, SCALE_KIND

KUBEFLOW: Final = "kubeflow.org"
TRAINER: Final = "trainer.kubeflow.org"
DLROVER: Final = "elastic.iml.github.io"
BATCH: Final = "batch"

KINDS: Final[Mapping[tuple[str, str], Callable[[Source], Conversion]]] = {
    (KUBEFLOW, "PyTorchJob"): pytorch_job.convert,
    (TRAINER, "TrainJob"): train_job.convert,
    (DLROVER, "ElasticJob"): dlrover_job.convert,
    (DLROVER, "ScalePlan"): dlrover_scale_plan.convert,
    (BATCH, "Job"): batch_job.convert,
    (KUBEFLOW, "TFJob"): tf_job.convert,
    **{(KUBEFLOW, kind): one_pod.convert for kind in one_pod.FRAMEWORKS},
}
"""Group and kind of each manifest that is understood."""

OWN: Final = (ELASTICJOB_KIND, SCALE_KIND)
_UNDERSTOOD: Final = ", ".join(kind for _, kind in KINDS)


def group_and_kind(document: Any) -> tuple[str, str]:
    """What a document says that it is.

    Raises:
        RefusedError: it is no object of Kubernetes.
    """
    if not isinstance(document, Mapping):
        raise RefusedError("no manifest: an object with apiVersion and kind is expected")
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise RefusedError(f"kind: is needed: one of {_UNDERSTOOD}")
    if not isinstance(version, str) or not version:
        raise RefusedError(f"{kind}: apiVersion: is needed, such as kubeflow.org/v1")
    group, slash, _ = version.partition("/")
    return (group if slash else "", kind)


def convert_all(documents: Sequence[Any]) -> list[tuple[int, Conversion | RefusedError]]:
    """What becomes of manifests that were given together: a TrainJob may name a runtime of them.

    Returns:
        The place of each among them, with its conversion or the reason against it. Penstock's own
        kinds stay as they are; a runtime that is named by a TrainJob of them is part of that one.
    """
    found: list[tuple[int, Conversion | RefusedError]] = []
    for place, document in enumerate(documents):
        if _is_runtime(document) and _is_named(document, documents):
            continue
        try:
            found.append((place, convert(document, documents)))
        except RefusedError as error:
            found.append((place, error))
    return found


def convert(document: Any, beside: Sequence[Any] = ()) -> Conversion:
    """A manifest of another system as an object of Penstock; one of Penstock's own as it is.

    Args:
        document: the manifest.
        beside: what else is at hand: a TrainJob may name a runtime among it.

    Raises:
        RefusedError: it has no correspondence; the message says which field, and what to do.
    """
    group, kind = group_and_kind(document)
    source = Source(document)
    for part in ("metadata", "spec"):
        source.mapping((part,))
    if group == GROUP:
        if kind not in OWN:
            raise RefusedError(f"{source.label}: {_not_ours(kind)}")
        return Conversion(source.label, dict(document), ())
    if _is_runtime(document):
        raise RefusedError(
            f"{source.label}: a runtime is no job: convert the TrainJob that names it, in the same "
            "file or folder"
        )
    known = KINDS.get((group, kind))
    if known is None:
        raise RefusedError(f"{source.label}: {_not_understood(group, kind)}")
    if known is train_job.convert:
        return train_job.convert(source, [Source(one) for one in beside if _is_runtime(one)])
    return known(source)


def _is_runtime(document: Any) -> bool:
    try:
        group, kind = group_and_kind(document)
    except RefusedError:
        return False
    return group == TRAINER and kind in train_job.RUNTIMES


def _is_named(runtime: Any, documents: Sequence[Any]) -> bool:
    """Whether a TrainJob of these names the runtime."""
    of_runtime = Source(runtime)
    jobs = [Source(one) for one in documents if isinstance(one, Mapping)]
    return any(
        job.document.get("kind") == "TrainJob" and train_job.names(job, of_runtime) for job in jobs
    )


def _not_ours(kind: str) -> str:
    others = sorted(group for group, name in KINDS if name == kind and group != GROUP)
    theirs = f"; {kind} of {', '.join(others)} can be converted: correct apiVersion" * bool(others)
    return f"kind: {kind} of {GROUP} is not known: Penstock's own are {', '.join(OWN)}{theirs}"


def _not_understood(group: str, kind: str) -> str:
    where = group or "the core group"
    groups = sorted(other for other, name in KINDS if name == kind)
    if groups:
        return (
            f"{kind} of {where} is not known; {kind} of {', '.join(groups)} is: correct apiVersion "
            "if it is meant, or leave it out"
        )
    return (
        f"{kind} of {where} is no job that can be converted ({_UNDERSTOOD}): apply it as it is, or "
        "leave it out"
    )
