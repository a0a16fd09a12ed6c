"""The algorithms as they are configured now: by the file at start, then by people through the API.

A change is checked, stored and audited before it counts, and every Brain on the same database
takes it over within a few seconds. What was changed through the API wins over the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.brain.planning import Algorithm
from penstock.brain.registry import (
    AlgorithmParametersError,
    AlgorithmSettings,
    Registry,
    UnknownAlgorithmError,
)
from penstock.brain.store.algorithms import AlgorithmChanges
from penstock.brain.store.audit import Audit
from penstock.brain.store.database import Database

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmState:
    """One algorithm and its settings."""

    algorithm: Algorithm[Any]
    settings: AlgorithmSettings
    params: Mapping[str, Any]


class Algorithms:
    """The registry in use, and changes to it."""

    def __init__(
        self,
        registry: Registry,
        settings: Mapping[str, AlgorithmSettings],
        database: Database,
        clock: Callable[[], float],
    ) -> None:
        self._known = registry
        self._settings = dict(settings)
        self._registry = registry
        self._database = database
        self._clock = clock
        self._unusable: dict[str, AlgorithmSettings] = {}
        """Stored for another version of the algorithm; reported once."""

    @property
    def registry(self) -> Registry:
        """What is in use now; a value that does not change."""
        return self._registry

    async def configure(self, settings: Mapping[str, AlgorithmSettings]) -> None:
        """Take over the settings of a file that has changed.

        Raises:
            UnknownAlgorithmError: No plugin has this name.
            AlgorithmParametersError: They are none of its; nothing is changed.
        """
        for name, own in settings.items():
            self._check(name, own)
        async with self._database.read() as session:
            changed = await AlgorithmChanges(session).all()
        for name in self._known:
            own = settings.get(name, AlgorithmSettings())
            if name not in changed and own != self._settings.get(name, AlgorithmSettings()):
                self._apply(name, own)

    async def reload(self) -> None:
        """Take over what another Brain, or this one before a restart, was told."""
        async with self._database.read() as session:
            changed = await AlgorithmChanges(session).all()
        for name, settings in changed.items():
            if name not in self._known or self._settings.get(name) == settings:
                continue
            try:
                self._check(name, settings)
            except AlgorithmParametersError as error:
                if self._unusable.get(name) != settings:
                    self._unusable[name] = settings
                    logger.error("settings changed through the API are not used: %s", error)
            else:
                self._apply(name, settings)

    def state(self, name: str) -> AlgorithmState:
        """One algorithm.

        Raises:
            UnknownAlgorithmError: No plugin has this name.
        """
        entry = self._known[name]
        settings = self._settings.get(name, AlgorithmSettings())
        params = entry.algorithm.params.model_validate(dict(settings.params))
        return AlgorithmState(
            algorithm=entry.algorithm, settings=settings, params=params.model_dump(mode="json")
        )

    def states(self) -> list[AlgorithmState]:
        """Every algorithm, by name."""
        return [self.state(name) for name in self._known]

    async def change(
        self,
        name: str,
        *,
        actor: str,
        enabled: bool | None = None,
        shadow: bool | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> AlgorithmState:
        """Change what is given, leave the rest.

        Raises:
            UnknownAlgorithmError: No plugin has this name.
            AlgorithmParametersError: They are none of its; nothing is changed.
        """
        if name not in self._known:
            raise UnknownAlgorithmError(name, self._known)
        old = self._settings.get(name, AlgorithmSettings())
        new = AlgorithmSettings(
            enabled=old.enabled if enabled is None else enabled,
            shadow=old.shadow if shadow is None else shadow,
            params={**old.params, **(params or {})},
        )
        self._check(name, new)
        async with self._database.write() as session:
            await AlgorithmChanges(session).put(name, new, self._clock())
            Audit(session).add(
                time_seconds=self._clock(),
                actor=actor,
                action="configure-algorithm",
                subject=name,
                detail={"before": old.model_dump(), "after": new.model_dump()},
            )
        self._apply(name, new)
        return self.state(name)

    def _check(self, name: str, settings: AlgorithmSettings) -> None:
        """Raise AlgorithmParametersError where the parameters are refused, also while disabled."""
        self._known.with_settings(name, settings.model_copy(update={"enabled": True}))

    def _apply(self, name: str, settings: AlgorithmSettings) -> None:
        entries = dict(self._registry.entries)
        if settings.enabled:
            changed = self._known.with_settings(name, settings)
            entries[name] = changed.entries[name]
        else:
            entries.pop(name, None)
        self._registry = Registry(entries)
        self._settings[name] = settings
