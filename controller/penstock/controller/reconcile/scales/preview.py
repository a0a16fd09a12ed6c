"""What a dry-run Scale would do: the difference between two targets, rank by rank."""

from __future__ import annotations

import dataclasses

from penstock.controller.reconcile.desired.targets import Held, Target, compute_target
from penstock.controller.reconcile.model.conditions import Conditions
from penstock.controller.reconcile.model.observed import Scale
from penstock.controller.reconcile.scales.admission import with_conditions
from penstock.crds.conditions import ScaleCondition, ScaleReason
from penstock.crds.elasticjob import ElasticJobSpec


def fill_in(spec: ElasticJobSpec, scales: list[Scale], held: Held, target: Target) -> list[Scale]:
    """The Scales with ``status.preview`` where a dry run was admitted and has none yet."""
    result: list[Scale] = []
    for scale in scales:
        wanted = (
            scale.dry_run
            and scale.is_true(ScaleCondition.ADMITTED)
            and "preview" not in scale.raw_status
        )
        if wanted:
            would_be = compute_target(spec, [*_others(scales, scale), _in_earnest(scale)], held)
            preview = _difference(target, would_be)
            scale = dataclasses.replace(  # noqa: PLW2901  the item, completed
                scale, raw_status={**scale.raw_status, "preview": preview}
            )
        result.append(scale)
    return result


def _others(scales: list[Scale], scale: Scale) -> list[Scale]:
    return [one for one in scales if one.name != scale.name]


def _in_earnest(scale: Scale) -> Scale:
    conditions = Conditions(scale.conditions, 1, scale.created)
    conditions.set(ScaleCondition.PREPARED, True, ScaleReason.NOT_REQUIRED)
    return dataclasses.replace(with_conditions(scale, conditions.current()), dry_run=False)


def _difference(before: Target, after: Target) -> dict[str, list[str]]:
    """Pods by ROLE-RANK; of data workers, counted as if they went from the highest rank."""
    created: list[str] = []
    removed: list[str] = []
    resized: list[str] = []
    for role in after.roles:
        old, new = before.role(role), after.role(role)
        created += [f"{role.in_names}-{rank}" for rank in range(old.total, new.total)]
        removed += [f"{role.in_names}-{rank}" for rank in range(new.total, old.total)]
        resized += [
            f"{role.in_names}-{rank}"
            for rank in range(min(old.total, new.total))
            if old.rank(rank) != new.rank(rank)
        ]
    return {"created": created, "removed": removed, "resized": resized}
