"""What a job should look like: one pure function of its spec and its admitted Scales.

For each role and field the target is, in this order: a fixed ``replicas`` of the spec; the newest
admitted pin; the newest admitted Scale of any source; the default. Counts are then clamped to the
spec's bounds, and those of workers rounded down to whole units. A rank's own cpu or memory takes
the place of its role's for as long as no newer Scale names that rank again.

A role whose pods may go or change only with the training's consent (`CONSENT`) is the one exception
to reading the spec directly: once such pods exist, an edited count takes effect through the Scale
that the controller writes for it, and until that one is prepared the count in force is held.

What a Scale says stays underneath whatever overrides it, so that removing a pin or setting
``replicas`` back to 0 brings it into effect again, in any order of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.enums import DATA_ROLES, Offload, Policy, Role, Source, Strategy
from penstock.base.fields import MAX_REPLICAS
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.model.target_fields import (
    AVOID_NODES,
    CPU,
    MEMORY,
    MIN_INCARNATION,
    REPLICAS,
    SPARE_REPLICAS,
    FieldKey,
)
from penstock.crds.conditions import ScaleCondition
from penstock.crds.elasticjob import ElasticJobSpec

SPEC: Final = ""
"""Origin of a field that the job's spec fixes; every other origin is the name of a Scale."""

SPEC_CHANGED: Final = "SpecChanged"
"""Reason of the Scales by which an edited count reaches a role that needs consent."""

CONSENT: Final = frozenset({Role.PS})


@dataclass(frozen=True, slots=True)
class RankTarget:
    """What sets one rank apart; None and empty mean: as its role."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    min_incarnation: int = 0
    avoid_nodes: tuple[str, ...] = ()


_PLAIN_RANK: Final = RankTarget()


@dataclass(frozen=True, slots=True)
class RoleTarget:
    """What one role should look like; None means: as its template says."""

    replicas: int = 0
    spare: int = 0
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    ranks: Mapping[int, RankTarget] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Pods of the role, spares included."""
        return self.replicas + self.spare

    def rank(self, rank: int) -> RankTarget:
        """What one rank should be, with the role's resources filled in."""
        own = self.ranks.get(rank, _PLAIN_RANK)
        return RankTarget(
            own.cpu_milli if own.cpu_milli is not None else self.cpu_milli,
            own.memory_bytes if own.memory_bytes is not None else self.memory_bytes,
            own.min_incarnation,
            own.avoid_nodes,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """What a whole job should look like.

    Attributes:
        roles: by role; a role that the job does not have is absent.
        origins: who decides each field: the name of a Scale, or `SPEC`.
        underneath: who would decide it if nothing were pinned or fixed.
    """

    roles: Mapping[Role, RoleTarget]
    origins: Mapping[FieldKey, str]
    underneath: Mapping[FieldKey, str]

    def role(self, role: Role) -> RoleTarget:
        """The target of a role; zero pods for one that the job does not have."""
        return self.roles.get(role, _NO_PODS)


_NO_PODS: Final = RoleTarget()


def counts_for_target(scale: Scale) -> bool:
    """Whether a Scale takes part in the target: admitted, not failed, not a dry run, prepared."""
    return (
        not scale.dry_run
        and not scale.deleting
        and scale.is_true(ScaleCondition.ADMITTED)
        and not scale.is_true(ScaleCondition.FAILED)
        and (scale.is_true(ScaleCondition.PREPARED) or not needs_consent(scale))
    )


def needs_consent(scale: Scale) -> bool:
    """Whether a Scale names a role that the training must be asked about."""
    return any(scale.names_role(role) for role in CONSENT)


def lay(scales: Iterable[Scale]) -> tuple[dict[FieldKey, Any], dict[FieldKey, str]]:
    """The fields of several Scales laid over one another, newest on top, and who said each."""
    values: dict[FieldKey, Any] = {}
    origins: dict[FieldKey, str] = {}
    for scale in sorted(scales, key=lambda one: one.order):
        values.update(scale.fields)
        origins.update(dict.fromkeys(scale.fields, scale.name))
    return values, origins


def roles_of(spec: ElasticJobSpec) -> tuple[Role, ...]:
    """The roles that a job has: declared ones, and data workers unless it wants none."""
    declared = spec.replica_specs.by_role()
    return tuple(
        role
        for role in Role
        if (spec.input.offload is not Offload.NEVER if role in DATA_ROLES else role in declared)
    )


@dataclass(frozen=True, slots=True)
class Held:
    """Counts in force of the roles in `CONSENT` that have pods, and the spec that may change them.

    An edited count takes effect through the Scale that was written for this very generation of the
    spec: a consent that was given long ago is no consent now.
    """

    counts: Mapping[Role, int] = field(default_factory=dict)
    generation: int = 0

    def __bool__(self) -> bool:
        return bool(self.counts)


NOTHING_HELD: Final = Held()


def compute_target(
    spec: ElasticJobSpec, scales: Iterable[Scale], held: Held = NOTHING_HELD
) -> Target:
    """The target of a job.

    Args:
        spec: the job's spec.
        scales: its Scales; those that do not count are passed over.
        held: what may not change without the training's consent.
    """
    counting = [scale for scale in scales if counts_for_target(scale)]
    plans = [scale for scale in counting if not is_spec_edit(scale)]
    values, underneath = lay(scale for scale in plans if scale.policy is Policy.APPLY)
    pinned, pin_origins = lay(scale for scale in plans if scale.policy is Policy.PIN)
    values.update(pinned)
    origins = {**underneath, **pin_origins}
    declared = spec.replica_specs.by_role()
    for role, role_spec in declared.items():
        if not role_spec.replicas:
            continue
        key = FieldKey(role, None, REPLICAS)
        values[key], origins[key] = role_spec.replicas, SPEC
        if role in held.counts and not any(
            is_spec_edit(one)
            and one.job_generation == held.generation
            and one.fields.get(key) == role_spec.replicas
            for one in counting
        ):
            values[key] = held.counts[role]
    roles = {role: _role_target(spec, role, values) for role in roles_of(spec)}
    return Target(roles, origins, underneath)


def is_spec_edit(scale: Scale) -> bool:
    """Whether a Scale carries an edited count of the spec through preparation."""
    return scale.source is Source.CONTROLLER and scale.reason == SPEC_CHANGED


def bounds(spec: ElasticJobSpec, role: Role) -> tuple[int, int]:
    """The least and the greatest number of replicas that a role may have."""
    role_spec = spec.replica_specs.by_role().get(role)
    if role_spec is None:
        return 0, MAX_REPLICAS
    greatest = MAX_REPLICAS if role_spec.max_replicas is None else role_spec.max_replicas
    if spec.strategy is Strategy.LOCAL and role is Role.WORKER:
        greatest = 1
    return min(role_spec.min_replicas, greatest), greatest


def clamp(spec: ElasticJobSpec, role: Role, replicas: int) -> int:
    """The number of replicas that counts where so many are asked for.

    That of training workers is a multiple of their ``nodeUnit``, rounded down; the least number is
    one.
    """
    least, greatest = bounds(spec, role)
    within = max(least, min(replicas, greatest))
    return max(least, within - within % _unit(spec, role))


def _unit(spec: ElasticJobSpec, role: Role) -> int:
    """How many pods of a role come and go together."""
    return spec.replica_specs.worker.unit if role is Role.WORKER else 1


def most_spares(spec: ElasticJobSpec, role: Role) -> int:
    """The greatest number of spare replicas: what the spec says, for workers alone.

    Spares come on top of maxReplicas and of resourceLimits, so nothing else would bound them.
    """
    if role is not Role.WORKER or spec.strategy is Strategy.LOCAL:
        return 0
    return spec.replica_specs.worker.spare_replicas


def _role_target(spec: ElasticJobSpec, role: Role, values: Mapping[FieldKey, Any]) -> RoleTarget:
    wanted = values.get(FieldKey(role, None, REPLICAS))
    replicas = clamp(spec, role, 0 if wanted is None else wanted)
    most = most_spares(spec, role)
    spare = min(values.get(FieldKey(role, None, SPARE_REPLICAS), most), most)
    spare = min(spare, MAX_REPLICAS - replicas)
    spare -= spare % _unit(spec, role)
    ranks: dict[int, dict[str, Any]] = {}
    for key, value in values.items():
        if key.role is role and key.rank is not None:
            ranks.setdefault(key.rank, {})[key.name] = value
    return RoleTarget(
        replicas=replicas,
        spare=spare,
        cpu_milli=values.get(FieldKey(role, None, CPU)),
        memory_bytes=values.get(FieldKey(role, None, MEMORY)),
        ranks={
            rank: RankTarget(
                own.get(CPU), own.get(MEMORY), own.get(MIN_INCARNATION, 0), own.get(AVOID_NODES, ())
            )
            for rank, own in sorted(ranks.items())
        },
    )
