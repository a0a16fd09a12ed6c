"""Algorithms: what there is, how it is configured, and changing that while the Brain runs."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from penstock.api.auth import Permission, Verb
from penstock.api.auth.caller import require
from penstock.api.state import BrainDep, CallerDep, problems
from penstock.base.enums import Stage, Strategy, Trigger
from penstock.brain.control.algorithm_settings import AlgorithmState
from penstock.wire.algorithms import AlgorithmPatch, AlgorithmView
from penstock.wire.base import ListResource

router = APIRouter(prefix="/v1/algorithms", tags=["algorithms"])
_RESOURCE: Final = "algorithms"

AlgorithmName = Annotated[str, Path(min_length=1, max_length=63)]


@router.get("", responses=problems())
async def list_algorithms(caller: CallerDep, brain: BrainDep) -> ListResource[AlgorithmView]:
    """Every algorithm with its parameters."""
    await require(caller, Permission(Verb.LIST, _RESOURCE))
    return ListResource(items=[_view(state) for state in brain.algorithms.states()])


@router.get("/{name}", responses=problems(404))
async def read_algorithm(name: AlgorithmName, caller: CallerDep, brain: BrainDep) -> AlgorithmView:
    """One algorithm with its parameters."""
    await require(caller, Permission(Verb.GET, _RESOURCE))
    return _view(brain.algorithms.state(name))


@router.patch("/{name}", responses=problems(404, 413))
async def configure_algorithm(
    name: AlgorithmName, body: AlgorithmPatch, caller: CallerDep, brain: BrainDep
) -> AlgorithmView:
    """Change an algorithm while the Brain runs: what is absent stays. The change is audited."""
    await require(caller, Permission(Verb.UPDATE, _RESOURCE))
    state = await brain.algorithms.change(
        name, actor=caller.name, enabled=body.enabled, shadow=body.shadow, params=body.params
    )
    return _view(state)


def _view(state: AlgorithmState) -> AlgorithmView:
    algorithm = state.algorithm
    return AlgorithmView(
        name=algorithm.name,
        version=algorithm.version,
        summary=algorithm.summary,
        enabled=state.settings.enabled,
        shadow=state.settings.shadow,
        stages=[stage for stage in Stage if stage in algorithm.stages],
        triggers=[trigger for trigger in Trigger if trigger in algorithm.triggers],
        strategies=[strategy for strategy in Strategy if strategy in algorithm.strategies],
        params=dict(state.params),
        params_schema=algorithm.params.model_json_schema(),
    )
