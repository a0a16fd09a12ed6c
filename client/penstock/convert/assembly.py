"""The parts that every converted job has: metadata, the budget of failures, and the last check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.enums import Optimize, Strategy
from penstock.base.fields import JOB_NAME, MAX_REPLICAS
from penstock.convert.gang import named_in, queue_in, take_out
from penstock.convert.program import Program
from penstock.convert.source import Json, Note, Path, RefusedError, Source
from penstock.convert.template import Template, checked_template
from penstock.crds.check import faults_in
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND

MAX_RESTARTS: Final = 1000
DEFAULT_RESTARTS: Final = 3
FIXED_SIZE: Final = "TensorFlow's cluster is of fixed size"
_KEPT: Final = ("name", "generateName", "namespace", "labels", "annotations")
_OF_SERVER: Final = "the API server's"
_ANNOTATIONS: Final = {
    "kubectl.kubernetes.io/last-applied-configuration": "kubectl's, of the old object",
    "training_elastic_mode": "of DLRover's checkpoints alone",
}


@dataclass(frozen=True)
class Conversion:
    """What became of one manifest.

    Attributes:
        source: the manifest, as KIND/NAME.
        result: the object of Penstock.
        notes: every field that is not in it as it was.
    """

    source: str
    result: Json
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Count:
    """How many pods a role has.

    Attributes:
        least: of them.
        most: None: no bound.
        fixed: the number of them; 0: the plan decides.
        unit: how many come and go together.
    """

    least: int
    most: int | None
    fixed: int = 0
    unit: int = 1

    def fields(self) -> Json:
        """As in ``spec.replicaSpecs``."""
        said: Json = {"replicas": self.fixed} if self.fixed else {}
        said["minReplicas"] = self.least
        if self.unit > 1:
            said["nodeUnit"] = self.unit
        return said if self.most is None else {**said, "maxReplicas": self.most}


def fixed(number: int) -> Count:
    """So many pods, no more and no fewer."""
    return Count(number, number, number)


def bounded(count: Count, nodes: tuple[int, int] | None) -> Count:
    """With the least number that a launcher was told, where it is one of a range."""
    if nodes is None or nodes[0] == nodes[1] or nodes[0] > count.least:
        return count
    return Count(nodes[0], count.most, count.fixed)


def in_units(source: Source, container: Path, count: Count, program: Program) -> Count:
    """Multiples of the unit that a launcher was told, where there are such between the bounds.

    Args:
        source: who is told what became of it.
        container: where it has the container with the launcher.
        count: as it would be without.
        program: what the launcher was told.
    """
    unit = program.node_unit
    if unit is None or unit == 1:
        return count
    least = -(-count.least // unit) * unit
    most = None if count.most is None else count.most // unit * unit
    command, option = (*container, "command"), "--node-unit"
    if count.fixed % unit or (most is not None and most < least) or least > MAX_REPLICAS:
        meaning = f"no such number of workers is a multiple of {unit}"
        source.drop_part(command, option, str(unit), meaning)
        return count
    meaning = "spec.replicaSpecs.worker.nodeUnit; minReplicas and maxReplicas are multiples of it"
    source.change_part(command, option, str(unit), meaning)
    return Count(least, most, count.fixed, unit)


def role(count: Count, template: Template | Json) -> Json:
    """One role of ``spec.replicaSpecs``."""
    manifest = template.manifest if isinstance(template, Template) else template
    return {**count.fields(), "template": manifest}


def metadata(source: Source) -> Json:
    """Name, namespace, labels and annotations; the rest is the server's."""
    given = source.mapping(("metadata",))
    kept: Json = {}
    for name in _KEPT:
        if given.get(name) is not None:
            kept[name] = given[name]
            source.keep(("metadata", name))
    annotations = dict(source.mapping(("metadata", "annotations")))
    for name in _ANNOTATIONS.keys() & annotations.keys():
        source.drop(("metadata", "annotations", name), _ANNOTATIONS[name])
        del annotations[name]
        kept["annotations"] = annotations
    if given.get("annotations") and not annotations:
        del kept["annotations"]
    for name in given:
        if name not in _KEPT:
            source.drop(("metadata", name), _OF_SERVER)
    source.drop(("status",), "what was seen of the old object")
    return kept


def restarts(source: Source, said: Sequence[tuple[Path, int]], from_command: int | None) -> Json:
    """``spec.failurePolicy``: the most that any field allows; empty where none says a number.

    Args:
        source: the manifest.
        said: fields of it that say a number, with what they say.
        from_command: what a launcher was told.
    """
    numbers = [number for _, number in said]
    if from_command is not None:
        numbers.append(from_command)
    if not numbers:
        return {}
    most = min(max(numbers), MAX_RESTARTS)
    for path, _ in said:
        source.change(path, f"spec.failurePolicy.maxRestarts: {most}, of each rank")
    return {"failurePolicy": {"maxRestarts": most}}


def carried(source: Source, fields: Mapping[str, Path]) -> Json:
    """Fields of the result that are the source's as they are, by name, where it has them."""
    found: Json = {}
    for name, path in fields.items():
        if (value := source.at(path)) is not None:
            source.keep(path)
            found[name] = value
    return found


def job(
    source: Source,
    strategy: Strategy,
    optimize: Optimize,
    fields: Json,
    roles: Json,
) -> Json:
    """The ElasticJob.

    Args:
        source: the manifest.
        strategy: how the replicas train together.
        optimize: what the Brain may do.
        fields: of ``spec``, besides; a gang has added what labels and annotations say of it.
        roles: ``spec.replicaSpecs``; names of groups of pods are taken out of their templates.

    Raises:
        RefusedError: the source says something that no ElasticJob can have.
    """
    named = named_in(source)
    if named is not None or "gang" in fields:
        gang = {**queue_in(source), **(named or {}), **fields.get("gang", {})}
        fields = {**fields, "gang": gang}
    kept = metadata(source)
    take_out(kept)
    for spec in roles.values():
        take_out(spec["template"].get("metadata") or {})
    document = {
        "apiVersion": API_VERSION,
        "kind": ELASTICJOB_KIND,
        "metadata": kept,
        "spec": {
            "strategy": strategy.value,
            "optimize": optimize.value,
            **fields,
            "replicaSpecs": roles,
        },
    }
    check_job(source, document)
    return document


def check_job(source: Source, document: Json) -> None:
    """Hold a job against its definition.

    Raises:
        RefusedError: names the field of the result, and the rule.
    """
    checked(source, document)
    name = document["metadata"].get("name") or ""
    if (
        not (len(name) <= 63 and re.fullmatch(JOB_NAME, name))
        and "generateName" not in (document["metadata"])
    ):
        raise source.refused(
            ("metadata", "name"),
            "must be at most 63 lower-case letters, digits and hyphens, the first a letter: "
            "rename it",
        )
    for name, spec in document["spec"]["replicaSpecs"].items():
        least, most = spec.get("minReplicas", 0), spec.get("maxReplicas", MAX_REPLICAS)
        if not least <= (spec.get("replicas") or least) <= most:
            raise RefusedError(
                f"{source.label}: role {name}: from {least} to {most} pods, and "
                f"{spec.get('replicas') or least} of them: the numbers contradict each other"
            )
        checked_template(source, spec["template"])


def checked(source: Source, document: Json) -> None:
    """Hold an object against the definition of its kind. Raises RefusedError."""
    found: list[Any] = faults_in(document)
    if found:
        raise RefusedError(f"{source.label}: as {document['kind']} of Penstock: {found[0]}")
