"""What is installed beside this package, as a software bill of materials (CycloneDX 1.6, JSON).

    python -m penstock.base.bill_of_materials > sbom.cdx.json

It is read from the metadata of the installed distributions, by the interpreter that is to be
described: in an image, that of the image. So it needs nothing but the standard library, and says
what is there and not what was asked for. The same environment gives the same bytes, but for the
time, which is that of ``SOURCE_DATE_EPOCH`` where it is set. What comes from elsewhere, the system
packages of an image for instance, is not in it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from typing import Any, Final

ROOT: Final = "penstock"
_FORMAT: Final = "1.6"
_LOCAL: Final = frozenset({ROOT, "penstock-cluster"})
"""Distributions of this repository, which no package index knows."""
_REQUIRED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONDITIONAL: Final = re.compile(r"\bextra\s*==")
_OPEN_SOURCE: Final = "License :: OSI Approved :: "
_LONGEST_LICENSE: Final = 80
"""Some distributions give the whole text of their license as its name."""

Json = dict[str, Any]


def bill_of_materials(
    installed: Iterable[Distribution], *, time: datetime, interpreter: str
) -> Json:
    """The bill of what is installed.

    Args:
        installed: the distributions; of several of one name the first one counts, as for imports.
        time: when the bill is made.
        interpreter: the version of Python that runs them.

    Raises:
        LookupError: `ROOT` is not among them.
    """
    found: dict[str, Distribution] = {}
    for one in installed:
        if one.metadata["Name"]:
            found.setdefault(normalized(one.metadata["Name"]), one)
    if ROOT not in found:
        raise LookupError(f"{ROOT} is not installed here")
    references = {name: _reference(name, one) for name, one in sorted(found.items())}
    python = f"python=={interpreter}"
    components = [_component(name, found[name]) for name in references if name != ROOT]
    components.append(
        {"type": "platform", "bom-ref": python, "name": "python", "version": interpreter}
    )
    dependencies = [
        {"ref": reference, "dependsOn": _depends_on(name, found, references)}
        for name, reference in references.items()
    ]
    bill: Json = {
        "bomFormat": "CycloneDX",
        "specVersion": _FORMAT,
        "version": 1,
        "metadata": {
            "timestamp": time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**_component(ROOT, found[ROOT]), "type": "application"},
        },
        "components": components,
        "dependencies": [*dependencies, {"ref": python, "dependsOn": []}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return {**bill, "serialNumber": f"urn:uuid:{serial}"}


def normalized(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reference(name: str, one: Distribution) -> str:
    return f"{name}=={one.version}"


def _component(name: str, one: Distribution) -> Json:
    component: Json = {
        "type": "library",
        "bom-ref": _reference(name, one),
        "name": name,
        "version": one.version,
    }
    if name not in _LOCAL:
        component["purl"] = f"pkg:pypi/{name}@{one.version.replace('+', '%2B')}"
    if licenses := _licenses(one):
        component["licenses"] = licenses
    return component


def _licenses(one: Distribution) -> list[Json]:
    """What a distribution says of its license: an SPDX expression, or else names."""
    metadata = one.metadata
    if expressions := metadata.get_all("License-Expression"):
        return [{"expression": expressions[0]}]
    classified = [
        text.removeprefix(_OPEN_SOURCE)
        for text in metadata.get_all("Classifier") or ()
        if text.startswith(_OPEN_SOURCE)
    ]
    said = "".join(metadata.get_all("License") or ()).strip()
    short = said and "\n" not in said and len(said) <= _LONGEST_LICENSE
    return [{"license": {"name": name}} for name in classified or ([said] if short else [])]


def _depends_on(
    name: str, found: Mapping[str, Distribution], references: Mapping[str, str]
) -> list[str]:
    """References of what a distribution requires and is installed.

    Nobody notes which extras were asked for, so only those of `ROOT` are followed: of them, what is
    here counts as required.
    """
    required = set()
    for text in found[name].requires or ():
        if name != ROOT and _CONDITIONAL.search(text):
            continue
        if match := _REQUIRED.match(text):
            required.add(normalized(match.group()))
    return [references[other] for other in sorted(required & found.keys() - {name})]


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Print the bill; the exit status."""
    epoch = environment.get("SOURCE_DATE_EPOCH", "")
    if epoch and not epoch.isdecimal():
        sys.stderr.write(f"SOURCE_DATE_EPOCH: {epoch!r} is not a number of seconds since 1970\n")
        return 2
    time = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    bill = bill_of_materials(distributions(), time=time, interpreter=platform.python_version())
    sys.stdout.write(json.dumps(bill, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
