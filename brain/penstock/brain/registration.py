"""A job as it is registered, and the limits that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

from penstock.base import quantity
from penstock.brain.configuration import LimitSettings
from penstock.brain.planning import JobDescription, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a trainer says of its job; `resource_limits` are quantities by resource name."""

    description: JobDescription
    resource_limits: Mapping[str, str] = field(default_factory=dict)

    def limits(self, settings: LimitSettings, node_milli_cpu: int | None = None) -> Limits:
        """What a plan for the job may ask for.

        `node_milli_cpu`: the largest allocatable CPU of a node, where known. Limits of zero, which
        no plan could keep, count as absent.
        """
        cpu = self.resource_limits.get("cpu")
        memory = self.resource_limits.get("memory")
        milli_cpu = quantity.parse_milli_cpu(cpu) or None if cpu else None
        memory_bytes = quantity.parse_bytes(memory) or None if memory else None
        pod_caps = (settings.pod_milli_cpu, node_milli_cpu, milli_cpu)
        memory_caps = [cap for cap in (settings.pod_memory_bytes, memory_bytes) if cap]
        return Limits(
            milli_cpu=milli_cpu,
            memory_bytes=memory_bytes,
            pod_milli_cpu=min(cap for cap in pod_caps if cap),
            pod_memory_bytes=min(memory_caps, default=None),
            core_milli_cpu=settings.core_milli_cpu,
        )

    def dump(self) -> str:
        """As JSON, for the store."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def parse(text: str) -> Registration:
        """What `dump` gave."""
        return _ADAPTER.validate_json(text)


_ADAPTER: Final = TypeAdapter(Registration)
