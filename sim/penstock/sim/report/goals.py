"""Goals of a simulation: what is wanted, what was found, and whether that is enough."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """One of them; a command with one that is missed ends with 1."""

    name: str
    goal: str
    got: float
    ok: bool


def at_most(name: str, bound: float, got: float) -> Goal:
    """A figure that is to be no larger."""
    return Goal(name, f"<= {bound:g}", round(got, 4), got <= bound + 1e-9)


def at_least(name: str, bound: float, got: float) -> Goal:
    """A figure that is to be no smaller."""
    return Goal(name, f">= {bound:g}", round(got, 4), got >= bound - 1e-9)


def near(name: str, published: float, got: float, share: float) -> Goal:
    """A figure that is to differ from what was published by no more than a share of it."""
    ok = abs(got - published) <= share * abs(published) + 1e-9
    return Goal(name, f"{published:g} within {share:.0%}", round(got, 4), ok)
