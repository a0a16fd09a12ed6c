"""``penstock forecast``: how long a job would take, and what it would cost, before it is submitted.

From jobs like it that have finished, which the Brain knows; nothing is submitted, and nothing kept.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.base.quantity import parse
from penstock.cli import manifests, output, wording
from penstock.cli.listing import AllNamespaces
from penstock.cli.session import Session, UsageError, connected
from penstock.crds.group import ELASTICJOB_KIND

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.crds.elasticjob import ElasticJob
    from penstock.wire import Expected, Forecast

HOUR: Final = 3600.0


@connected
def forecast_(
    session: Session,
    file: Annotated[
        Path, typer.Option("--filename", "-f", help="Manifest of an ElasticJob; - reads stdin.")
    ],
    all_namespaces: AllNamespaces = False,
) -> None:
    """Say how long a job would take and what it would cost, from finished jobs like it."""
    from penstock.wire import ForecastRequest, Signature

    job = _job(file)
    said = job.spec.signature
    signature = Signature(**said.model_dump(exclude_none=True)) if said else Signature()
    if not signature.finds_jobs:
        raise UsageError(
            "spec.signature: names nothing, so that no job is known to be like it; say model, "
            "dataset or user there"
        )
    asked = ForecastRequest(
        strategy=job.spec.strategy,
        signature=signature,
        namespace="" if all_namespaces else job.metadata.namespace or session.namespace,
    )
    found = session.brain.forecast(asked)
    session.show(found.model_dump(mode="json", exclude_none=True), lambda: figures(found))
    if session.output is output.Format.TABLE:
        for line in notes(found, job.spec.budget, job.spec.deadline, datetime.now(UTC)):
            session.note(line)


def _job(file: Path) -> ElasticJob:
    from pydantic import ValidationError

    from penstock.crds.elasticjob import ElasticJob

    where = manifests.in_words(file)
    documents = [
        one
        for one in manifests.read([file])
        if isinstance(one.content, dict) and one.content.get("kind") == ELASTICJOB_KIND
    ]
    if len(documents) != 1:
        raise UsageError(f"{where}: has {len(documents)} objects of kind ElasticJob; give it one")
    try:
        return ElasticJob.model_validate(documents[0].content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: {field}: {first['msg']}; see penstock crds --check") from error


def figures(found: Forecast) -> RenderableType:
    """The table: each figure with the range in which nine of ten come."""
    rows = [
        _row("time", found.seconds, wording.duration),
        _row("core-hours", found.core_seconds, _hours),
        _row("GiB-hours", found.gib_seconds, _hours),
        _row("GPU-hours", found.accelerator_seconds, _hours),
        _row(found.currency or "cost", found.cost, lambda value: f"{value:,.2f}"),
    ]
    return output.table(
        ["FIGURE", ("LIKELY", "right"), ("9 OF 10 FROM", "right"), ("TO", "right"), "FROM"],
        [row for row in rows if row],
    )


def notes(
    found: Forecast,
    budget: str | None = None,
    deadline: datetime | None = None,
    now: datetime | None = None,
) -> list[str]:
    """What is to be known beside the figures; ``budget`` and ``deadline``: as the manifest says."""
    said = []
    if budget is not None and found.cost is not None and found.currency is not None:
        limit = float(parse(budget))
        kept = _kept(found.cost, limit, "within", "more than")
        said.append(f"the cost is {kept} the budget of {limit:,.2f} {found.currency}")
    if deadline is not None and now is not None:
        left = (deadline - now).total_seconds()
        if left <= 0:
            said.append(
                f"the deadline is past since {wording.duration(-left)}: such a job is made as fast"
                " as it can be; say a later one, or leave it out"
            )
        elif found.seconds is not None:
            kept = _kept(found.seconds, left, "before", "after")
            said.append(
                f"if it began now it would end {kept} its deadline, which is in"
                f" {wording.duration(left)}"
            )
    if found.seconds is None:
        said.append(
            "nothing is known of jobs like it: none that shares a part of its signature has "
            "succeeded in four weeks"
        )
    elif found.seconds.low is None:
        said.append(
            "no range can be given: so far "
            f"{found.seconds.comparisons} estimates could be compared with what came, and it "
            "takes 20"
        )
    if found.currency is None:
        said.append("the Brain has no prices: set `prices` in its configuration")
    said.append("from the start of its trainer; when there is room for its pods is not told")
    return said


def _kept(one: Expected, limit: float, yes: str, no: str) -> str:
    """Whether a figure stays below a limit, as far as its range, if it has one, says so."""
    if one.value > limit:
        return no if one.low is not None and one.low > limit else f"likely {no}"
    return yes if one.high is not None and one.high <= limit else f"likely {yes}"


def _row(name: str, one: Expected | None, words: Callable[[float], str]) -> list[str]:
    if one is None:
        return []
    low, high = ("-", "-")
    if one.low is not None and one.high is not None:
        low, high = words(one.low), words(one.high)
    jobs = "1 job" if one.jobs == 1 else f"{one.jobs} jobs"
    return [name, words(one.value), low, high, f"{jobs} of the same {' and '.join(one.level)}"]


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:,.1f}"
