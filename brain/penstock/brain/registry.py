"""Which algorithms there are, with which parameters: decided once, when the Brain starts.

Algorithms are plugins of entry-point group ``penstock.algorithms``. Loading either gives a
registry in which every algorithm can be run as configured, or raises one error that names what to
correct: an algorithm that nobody provides, a parameter that it does not have, a plugin that cannot
be imported. Nothing is skipped in silence; an algorithm that is switched off is not imported.

A registry is a value. A live change of parameters gives a new one (`Registry.with_settings`), so
that a plan in the making is never half old and half new.

What an algorithm borrows of another's parameters (`Algorithm.borrows`) is looked up when it is
asked for, so that both measure alike whichever is changed; of one that is off it has defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from penstock.brain.planning import Algorithm, History, JobDescription, Limits, Params, Plan

ENTRY_POINT_GROUP: Final = "penstock.algorithms"


class RegistryError(Exception):
    """The algorithms cannot be used as configured."""


class UnknownAlgorithmError(RegistryError):
    """No plugin has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(
            f"unknown algorithm {name!r}: the known ones are {', '.join(self.known) or '(none)'}; "
            "a new one is known once the distribution that registers it is installed again"
        )


class BrokenAlgorithmError(RegistryError):
    """A plugin cannot be imported, or is not an `Algorithm`."""

    def __init__(self, name: str, origin: str, cause: str) -> None:
        self.name = name
        super().__init__(
            f"algorithm {name!r} ({origin}) cannot be used: {cause}; repair or uninstall it, "
            f"or switch it off with algorithms.{name}.enabled = false"
        )


class AlgorithmParametersError(RegistryError):
    """Parameters that the algorithm's model refuses; `problems` has one line for each."""

    def __init__(self, name: str, problems: tuple[str, ...]) -> None:
        self.name = name
        self.problems = problems
        super().__init__(
            f"algorithm {name!r} has parameters that it refuses: {'; '.join(problems)}"
        )


class AlgorithmSettings(BaseModel):
    """How one algorithm is configured; everything has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    enabled: bool = True
    """False: not imported, not run."""
    shadow: bool = False
    """True: its plans are recorded beside the applied ones, and never applied."""
    params: Mapping[str, Any] = {}
    """Values for the algorithm's own parameter model; an unknown key is an error."""


@dataclass(frozen=True, slots=True)
class Registered:
    """An algorithm with the parameters it will run with."""

    algorithm: Algorithm[Any]
    params: Params
    shadow: bool = False

    def plan(self, history: History, job: JobDescription, limits: Limits) -> Plan | None:
        """Run the algorithm here and now. It may raise anything: run it where that is contained."""
        return self.algorithm.plan(history, job, limits, self.params)


@dataclass(frozen=True, slots=True)
class Registry:
    """The algorithms of one configuration, by name."""

    entries: Mapping[str, Registered]

    def __getitem__(self, name: str) -> Registered:
        entry = self.entries.get(name)
        if entry is None:
            raise UnknownAlgorithmError(name, self.entries)
        borrowed = {
            other: self.entries[other].params
            for other in entry.algorithm.borrows
            if other in self.entries
        }
        if not borrowed:
            return entry
        return replace(entry, params=entry.params.model_copy(update=borrowed))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def require(self, names: Iterable[str]) -> None:
        """Raise `UnknownAlgorithmError` for the first of `names` that is not here."""
        for name in names:
            self[name]

    def with_settings(self, name: str, settings: AlgorithmSettings) -> Registry:
        """This registry with one algorithm's settings replaced.

        Raises:
            UnknownAlgorithmError: No plugin has this name.
            AlgorithmParametersError: They are none of its; nothing is changed.
        """
        algorithm = self[name].algorithm
        entries = dict(self.entries)
        if settings.enabled:
            entries[name] = _register(algorithm, settings)
        else:
            del entries[name]
        return Registry(entries)


def load(
    settings: Mapping[str, AlgorithmSettings] | None = None,
    plugins: Iterable[EntryPoint] | None = None,
) -> Registry:
    """Import every plugin that is not switched off and check its parameters.

    `plugins` defaults to the installed entry points. Raises a RegistryError that names the
    algorithm, the value at fault and the rule.
    """
    settings = settings or {}
    found: dict[str, EntryPoint] = {}
    for plugin in entry_points(group=ENTRY_POINT_GROUP) if plugins is None else plugins:
        other = found.setdefault(plugin.name, plugin)
        if other.value != plugin.value:
            raise BrokenAlgorithmError(
                plugin.name, plugin.value, f"{other.value} has registered the same name"
            )
    for name in settings:
        if name not in found:
            raise UnknownAlgorithmError(name, found)
    entries: dict[str, Registered] = {}
    for name, plugin in sorted(found.items()):
        chosen = settings.get(name, AlgorithmSettings())
        if chosen.enabled:
            entries[name] = _register(_import(plugin), chosen)
    return Registry(entries)


def _import(plugin: EntryPoint) -> Algorithm[Any]:
    try:
        algorithm = plugin.load()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise BrokenAlgorithmError(plugin.name, plugin.value, cause) from error
    if not isinstance(algorithm, Algorithm):
        cause = f"it is a {type(algorithm).__name__}, not a penstock.brain.planning.Algorithm"
        raise BrokenAlgorithmError(plugin.name, plugin.value, cause)
    if algorithm.name != plugin.name:
        raise BrokenAlgorithmError(
            plugin.name, plugin.value, f"it calls itself {algorithm.name!r}: the names must agree"
        )
    return algorithm


def _register(algorithm: Algorithm[Any], settings: AlgorithmSettings) -> Registered:
    if others := algorithm.borrows & settings.params.keys():
        problems = tuple(
            f"{other}: is what algorithm {other} measures by; set algorithms.{other}.params"
            for other in sorted(others)
        )
        raise AlgorithmParametersError(algorithm.name, problems)
    own = sorted(algorithm.params.model_fields.keys() - algorithm.borrows)
    try:
        params = algorithm.params.model_validate(dict(settings.params))
    except ValidationError as error:
        problems = tuple(
            f"{'.'.join(str(part) for part in problem['loc']) or 'params'}"
            f" = {problem['input']!r}: {problem['msg']}"
            + (
                f" (it has {', '.join(own) or 'none'})"
                if problem["type"] == "extra_forbidden"
                else ""
            )
            for problem in error.errors()
        )
        raise AlgorithmParametersError(algorithm.name, problems) from error
    return Registered(algorithm=algorithm, params=params, shadow=settings.shadow)
