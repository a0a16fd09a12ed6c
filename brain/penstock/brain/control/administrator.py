"""When one job should be planned again: the conditions of DLRover's administrator, section 4.3.

A pure function of what the administrator remembers and what it sees. What it remembers is lost
with the process; a new Brain then measures the present plan once more, and does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.base.enums import Optimize, Trigger
from penstock.brain.configuration import AdministratorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of a job now. Times by the server's clock."""

    optimize: Optimize
    plan: int | None
    """The plan in force."""
    planned_seconds: float | None = None
    """When that plan was made."""
    changed_servers: bool = False
    """Whether it changed the parameter servers of a job that ran; a first plan changes none."""
    step: int = 0
    sampled_seconds: float | None = None
    """The newest sample."""
    out_of_memory_seconds: float | None = None
    """The newest time that a pod ran out of memory."""
    symptoms: tuple[Trigger, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What an administrator remembers of its job."""

    plan: int | None = None
    first_step: int | None = None
    """Step of the first sample under the plan; None before there is one."""
    first_seconds: float = 0.0
    asked_seconds: float | None = None
    """When a plan was asked for last."""
    looked_seconds: float | None = None
    """When that was last for no symptom: one that stays does not put off the usual look."""
    measured: bool = False
    """Whether the plan in force has been measured."""


def decide(
    memory: Memory, observed: Observed, now: float, settings: AdministratorSettings
) -> tuple[Memory, Trigger | None]:
    """Why the job should be planned now, if at all, and what to remember."""
    if observed.optimize is Optimize.MANUAL:
        return memory, None
    if observed.plan is None:
        if memory.asked_seconds is None or now - memory.asked_seconds >= settings.interval_seconds:
            return replace(memory, asked_seconds=now), Trigger.CREATED
        return memory, None
    if observed.optimize is Optimize.INITIAL:
        return memory, None
    if observed.plan != memory.plan:
        memory = Memory(plan=observed.plan, asked_seconds=memory.asked_seconds)
    trigger, memory = _trigger(memory, observed, now, settings)
    if trigger is not None:
        memory = replace(memory, asked_seconds=now)
    if trigger in (Trigger.SAMPLED, Trigger.INTERVAL):
        memory = replace(memory, looked_seconds=now)
    return memory, trigger


def _trigger(
    memory: Memory, observed: Observed, now: float, settings: AdministratorSettings
) -> tuple[Trigger | None, Memory]:
    asked = memory.asked_seconds
    out_of_memory = observed.out_of_memory_seconds
    if out_of_memory is not None and out_of_memory > max(
        asked or 0.0, observed.planned_seconds or 0.0
    ):
        return Trigger.OUT_OF_MEMORY, memory
    sampled, planned = observed.sampled_seconds, observed.planned_seconds
    if sampled is None or (planned is not None and sampled <= planned):
        return None, memory
    if memory.first_step is None:
        memory = replace(memory, first_step=observed.step, first_seconds=sampled)
    if not memory.measured:
        steps = observed.step - (memory.first_step or 0)
        enough = (
            steps >= settings.enough_steps
            or sampled - memory.first_seconds >= settings.enough_seconds
        )
        return (Trigger.SAMPLED, replace(memory, measured=True)) if enough else (None, memory)
    pause = (
        settings.servers_interval_seconds if observed.changed_servers else settings.interval_seconds
    )
    since = now - max(asked or 0.0, planned or 0.0)
    unlooked = now - max(memory.looked_seconds or 0.0, planned or 0.0)
    calm = since >= min(settings.reaction_seconds, pause)
    if unlooked >= pause and calm and (asked is None or sampled > asked):
        return Trigger.INTERVAL, memory
    recent_servers = (
        observed.changed_servers
        and planned is not None
        and now - planned < settings.servers_interval_seconds
    )
    if observed.symptoms and since >= settings.reaction_seconds and not recent_servers:
        return observed.symptoms[0], memory
    return None, memory
