"""Label and field selectors: parsing, with the real parser's messages, and matching."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_cluster.registry.model import names
from penstock_cluster.registry.model.errors import bad_request

Json = dict[str, Any]

_TOKEN = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")
_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label: ``key operator values``."""

    key: str
    operator: str  # in, notin, exists, absent, gt, lt
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        try:
            bound, number = int(next(iter(self.values))), int(value or "")
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


class LabelSelector:
    """A conjunction of requirements; an empty one matches everything."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: tuple[Requirement, ...] = ()) -> None:
        self.requirements = requirements

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        present = labels or {}
        return all(requirement.matches(present) for requirement in self.requirements)

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Parse ``a=b,c in (d,e),!f``; :class:`ApiError` 400 with the parser's message."""
        return cls(tuple(_Parser(text).requirements())) if text.strip() else cls()

    @classmethod
    def of(cls, selector: Json | None) -> LabelSelector:
        """From a ``LabelSelector`` object; absent selects nothing, which callers must decide."""
        found: list[Requirement] = []
        for key, value in ((selector or {}).get("matchLabels") or {}).items():
            found.append(Requirement(key, "in", frozenset([value])))
        operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
        for expression in (selector or {}).get("matchExpressions") or []:
            operator = operators[expression["operator"]]
            values = frozenset(expression.get("values") or ())
            found.append(Requirement(expression["key"], operator, values))
        return cls(tuple(found))


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _fail(self, message: str) -> None:
        raise bad_request(f"unable to parse requirement: {message}")

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            token = self._peek()
            if not token:
                break
            found.append(self._requirement())
            token = self._next()
            if not token:
                break
            if token != ",":
                self._fail(f"found '{token}', expected: ',' or 'end of string'")
            if not self._peek():
                self._fail("found '', expected: identifier after ','")
        return found

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if not key or key in ("=", "==", "!=", "(", ")", ",", "<", ">", "!"):
            self._fail(f"found '{key}', expected: identifier")
        for why in names.qualified_name_faults(key):
            self._fail(f'<nil>: Invalid value: "{key}": {why}')
        if absent:
            return Requirement(key, "absent")
        operator = self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self._next()
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._values(key))
        if operator in ("=", "==", "!="):
            value = self._value(key)
            return Requirement(key, "notin" if operator == "!=" else "in", frozenset([value]))
        if operator in (">", "<"):
            bound = self._value(key)
            return Requirement(key, "gt" if operator == ">" else "lt", frozenset([bound]))
        self._fail(f"found '{operator}', expected: {', '.join(_OPERATORS)}")
        raise AssertionError("unreachable")

    def _value(self, key: str) -> str:
        token = self._peek()
        if token in ("", ","):
            return ""
        self._next()
        self._check(key, token)
        return token

    def _values(self, key: str) -> frozenset[str]:
        token = self._next()
        if token != "(":
            self._fail(f"found '{token}' expected: '('")
        values: set[str] = set()
        current = ""
        while True:
            token = self._next()
            if not token:
                self._fail("found '', expected: ',' or ')'")
            if token in (",", ")"):
                self._check(key, current)
                values.add(current)
                current = ""
                if token == ")":
                    return frozenset(values)
            else:
                current = token

    def _check(self, key: str, value: str) -> None:
        for why in names.label_value_faults(value):
            self._fail(f'values[0][{key}]: Invalid value: "{value}": {why}')


FieldReader = Callable[[Json], str]


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    field: str
    value: str
    equal: bool
    reader: FieldReader


class FieldSelector:
    """A conjunction over the few fields a kind makes selectable."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: tuple[FieldRequirement, ...] = ()) -> None:
        self.requirements = requirements

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, document: Json) -> bool:
        return all(
            (item.reader(document) == item.value) is item.equal for item in self.requirements
        )

    def exact(self, field: str) -> str | None:
        """The value that ``field`` must have, if the selector fixes it."""
        for item in self.requirements:
            if item.field == field and item.equal:
                return item.value
        return None

    @classmethod
    def parse(cls, text: str, readers: Mapping[str, FieldReader]) -> FieldSelector:
        """Parse ``a=b,c!=d``; fields outside ``readers`` are refused as the server refuses them."""
        found: list[FieldRequirement] = []
        for term in text.split(","):
            if not term:
                continue
            for operator in ("!=", "==", "="):
                field, separator, value = term.partition(operator)
                if separator:
                    break
            else:
                raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
            reader = readers.get(field)
            if reader is None:
                raise bad_request(f"field label not supported: {field}")
            found.append(FieldRequirement(field, value, operator != "!=", reader))
        return cls(tuple(found))
