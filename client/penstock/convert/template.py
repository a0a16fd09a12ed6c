"""Pod templates: kept as they are but for what Penstock sets itself, and the program."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.accelerators import ACCELERATOR_KINDS
from penstock.convert.program import Program, Setting, agent_command
from penstock.convert.source import Json, Path, RefusedError, Source, shown
from penstock.crds.pod_shape import TemplateError, check_template

_NAMED_HERE: Final = "pods are named after the job"
_METADATA_KEPT: Final = frozenset({"labels", "annotations"})
_SPEC_DROPPED: Final = {
    "restartPolicy": "a pod that ends is replaced, never restarted in place: "
    "spec.failurePolicy.maxRestarts",
    "hostname": "each pod is ROLE-RANK.JOB.NAMESPACE.svc",
    "subdomain": "each pod is ROLE-RANK.JOB.NAMESPACE.svc",
}
_OWN_IMAGE: Final = re.compile(r"(^|/)penstock(/|:|@|$)")
_IMAGE: Final = (
    "needs Penstock in it: build on it with RUN pip install 'penstock[runtime]' (Python 3.11 or "
    "newer), or take an image that has both"
)


@dataclass(frozen=True)
class RoleProgram:
    """How the program of a role is run.

    Attributes:
        setting: what the source's system would have told its launcher; `gpus` is read here.
        container: name of the container that has it; the first one where there is none.
        variables: of the source's system, to what stands for each here.
        several: whether there may be several pods of the role.
        image: for a container that names none.
    """

    setting: Setting = field(default_factory=Setting)
    container: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    several: bool = True
    image: str = ""


@dataclass(frozen=True)
class Template:
    """A template for Penstock, and what its command line said besides.

    Attributes:
        manifest: the template.
        program: what its first container is to run.
        container: where the source has that container.
    """

    manifest: Json
    program: Program
    container: Path


def role_template(source: Source, path: Path, how: RoleProgram) -> Template:
    """The template at a path of the source.

    Raises:
        RefusedError: it is none, or its program has no correspondence.
    """
    manifest = plain_template(source, path, how.container)
    at, container = _program_container(source, path, how.container, manifest)
    if not container.get("image") and how.image:
        container["image"] = how.image
    program = program_of(source, at, container, how)
    return Template(manifest, program, at)


def plain_template(source: Source, path: Path, container: str = "") -> Json:
    """The template at a path, its program as it is, the container of a name first.

    Raises:
        RefusedError: it is none.
    """
    given = source.at(path)
    if given is None:
        raise source.refused(path, "a pod template is needed")
    try:
        check_template(given)
    except TemplateError as error:
        raise RefusedError(f"{source.label}: {'.'.join(map(str, path))}.{error}") from error
    manifest: Json = copy.deepcopy(dict(given))
    source.keep(path)
    metadata = manifest.get("metadata") or {}
    for name in [name for name in metadata if name not in _METADATA_KEPT]:
        source.drop((*path, "metadata", name), _NAMED_HERE)
        del metadata[name]
    for name, meaning in _SPEC_DROPPED.items():
        if manifest["spec"].pop(name, None) is not None:
            source.drop((*path, "spec", name), meaning)
    if given.get("metadata") and not metadata:
        del manifest["metadata"]
    containers = manifest["spec"]["containers"]
    index = _index_of(containers, container)
    if index:
        containers.insert(0, containers.pop(index))
        source.change(
            (*path, "spec", "containers", index, "name"),
            "stands first, as the container that runs the program",
        )
    return manifest


def checked_template(source: Source, manifest: Json) -> None:
    """Hold a template that was put together against its form. Raises RefusedError."""
    try:
        check_template(manifest)
    except TemplateError as error:
        raise RefusedError(f"{source.label}: pod template: {error}") from error


def ask_for_image(source: Source, path: Path, image: Any) -> None:
    """Say what an image needs, unless it is one of Penstock's."""
    if isinstance(image, str) and not _OWN_IMAGE.search(image):
        source.ask(path, _IMAGE)


def program_of(source: Source, at: Path, container: Json, how: RoleProgram) -> Program:
    """Have a container run its program under the agent.

    Args:
        source: who is told what became of it.
        at: where the source has the container.
        container: the one that is changed.
        how: it is run.

    Raises:
        RefusedError: its program has no correspondence.
    """
    ask_for_image(source, (*at, "image"), container.get("image"))
    command, arguments = (_words(source, at, container, field) for field in ("command", "args"))
    if not command:
        if how.several:
            raise source.refused(
                (*at, "command"),
                "is needed: the image's own entry point is not known here, so write it out",
            )
        source.ask(
            (*at, "name"),
            "runs the image's own entry point, without Penstock's agent: to have it watched, "
            "write it out as command: [penstock, run, --, ...]",
        )
        return Program([])
    setting = Setting(
        how.setting.processes, _gpus(container), how.setting.ranks, how.setting.variables
    )
    try:
        program = agent_command([*command, *arguments], setting)
    except ValueError as error:
        raise source.refused((*at, "command"), str(error)) from error
    _tell(source, at, program)
    container["command"] = program.command
    container.pop("args", None)
    _set_environment(container, program.environment)
    ask_for_variables(source, at, container, how.variables)
    return program


def _words(source: Source, at: Path, container: Mapping[str, Any], field: str) -> list[str]:
    words = container.get(field) or []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise source.refused((*at, field), "must be a list of strings: put numbers in quotes")
    return words


def _tell(source: Source, at: Path, program: Program) -> None:
    """Say what became of a command line."""
    if program.launcher is not None:
        for option, value, meaning in program.dropped:
            source.drop_part((*at, "command"), option, value, meaning)
    as_run = shown(" ".join(program.command))
    source.change((*at, "command"), f"runs as: {as_run}")
    source.change((*at, "args"), "follows in command")
    for wanted in program.asked:
        source.ask((*at, "command"), wanted)


def _set_environment(container: Json, variables: Mapping[str, str]) -> None:
    if not variables:
        return
    others = [one for one in container.get("env") or () if one["name"] not in variables]
    container["env"] = others + [
        {"name": name, "value": value} for name, value in variables.items()
    ]


def ask_for_variables(
    source: Source, at: Path, container: Json, variables: Mapping[str, str]
) -> None:
    """Name what is read of the environment and is called otherwise here.

    Args:
        source: who is told.
        at: where the source has the container.
        container: it.
        variables: of the source's system, to what stands for each here.
    """
    text = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
    for name, here in variables.items():
        if re.search(rf"\b{name}\b", text):
            source.ask((*at, "command"), f"reads {name}, which is not set here: {here}")
    for index, one in enumerate(container.get("env") or ()):
        value = one.get("value") if isinstance(one, Mapping) else None
        for name, here in variables.items():
            if isinstance(value, str) and f"$({name})" in value:
                place = (*at, "env", index, "value")
                source.ask(place, f"reads {name}, which is not set here: {here}")


def _program_container(source: Source, path: Path, name: str, manifest: Json) -> tuple[Path, Json]:
    """Where the source has the container that is the first one now, and that one."""
    index = _index_of(source.mapping((*path, "spec"))["containers"], name)
    container: Json = manifest["spec"]["containers"][0]
    return (*path, "spec", "containers", index), container


def _index_of(containers: list[Any], name: str) -> int:
    names = [one.get("name") for one in containers]
    return names.index(name) if name in names else 0


def _gpus(container: Mapping[str, Any]) -> int:
    """Accelerators of a container, by its limits or requests."""
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        for name, amount in (resources.get(kind) or {}).items():
            if name in ACCELERATOR_KINDS and str(amount).isdecimal():
                return int(amount)
    return 0
