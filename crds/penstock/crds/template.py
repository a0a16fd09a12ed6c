"""The part of a pod template that Penstock relies on; the rest is kept as written, unread.

A template is a plain dict in Python. Containers are named and unique, so that server-side apply
and our own overlay merge them by name; the API server checks everything else when the pod is made.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from penstock.base.fields import DNS_LABEL
from penstock.base.structural import KeptAs, Model, UniqueItems


class _Container(Model):
    """A container; every field that a pod's container may have is kept."""

    preserve_unknown: ClassVar[bool] = True

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] = Field(
        description="Name of the container, unique within the pod."
    )


class _Volume(Model):
    """A volume; every field that a pod's volume may have is kept."""

    preserve_unknown: ClassVar[bool] = True

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] = Field(
        description="Name of the volume, unique within the pod."
    )


_Containers = Annotated[list[_Container], Field(min_length=1, max_length=32), UniqueItems("name")]
_Volumes = Annotated[list[_Volume], Field(max_length=64), UniqueItems("name")]


class _PodSpec(Model):
    """The spec of the pods; every field that a pod's spec may have is kept."""

    preserve_unknown: ClassVar[bool] = True

    containers: _Containers = Field(
        description="Containers of the pod, at least one. The one named main, else the first, runs"
        " the role's program: it ends the pod, and a plan's cpu and memory are its."
    )


class _PodTemplate(Model):
    """A pod template: metadata and spec as in a Deployment."""

    preserve_unknown: ClassVar[bool] = True

    spec: _PodSpec = Field(
        description="Spec of the pods; every field that a pod's spec may have is kept."
    )


class _PodSpecOverlay(Model):
    """Fields of a pod's spec that replace the default ones."""

    preserve_unknown: ClassVar[bool] = True

    containers: _Containers | None = Field(
        default=None, description="Containers, merged by name with those that Penstock makes."
    )
    volumes: _Volumes | None = Field(
        default=None, description="Volumes, merged by name with those that Penstock makes."
    )


class _PodTemplateOverlay(Model):
    """What of a default pod template is replaced."""

    preserve_unknown: ClassVar[bool] = True

    spec: _PodSpecOverlay | None = Field(
        default=None,
        description="Fields of the pod's spec to override; every field of a pod's spec is kept.",
    )


PodTemplate = Annotated[dict[str, Any], KeptAs(_PodTemplate)]
"""A whole pod template, with at least one container."""

PodTemplateOverlay = Annotated[dict[str, Any], KeptAs(_PodTemplateOverlay)]
"""Part of a pod template, laid over the one that Penstock makes."""
