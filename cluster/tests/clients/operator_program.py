"""An operator in the usual style of kopf; the tests run it with ``kopf run``, as its users do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import kopf

KIND = ("tests.penstock.dev", "v1", "notes")


def journal(**entry: Any) -> None:
    with Path(os.environ["JOURNAL"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.peering.standalone = True
    settings.watching.server_timeout = 10


@kopf.index(*KIND)
def by_colour(name: str, spec: kopf.Spec, **_: Any) -> dict[str, str]:
    return {spec["colour"]: name}


@kopf.on.create(*KIND)
def created(
    body: kopf.Body, spec: kopf.Spec, by_colour: kopf.Index[str, str], **_: Any
) -> dict[str, Any]:
    kopf.info(body, reason="Welcomed", message="a new note")
    return {"alike": sorted(by_colour.get(spec["colour"], []))}


@kopf.on.update(*KIND, field="spec.colour")
def recoloured(old: str, new: str, **_: Any) -> dict[str, str]:
    return {"old": old, "new": new}


@kopf.on.delete(*KIND)
def deleted(name: str, retry: int, **_: Any) -> None:
    journal(deleted=name, retry=retry)
    if retry == 0:
        raise kopf.TemporaryError("not at the first attempt", delay=0.2)


@kopf.on.event("pods", labels={"watched": "yes"})
def seen(name: str, type: str | None, **_: Any) -> None:  # noqa: A002 (kopf's name)
    journal(pod=name, type=type)
