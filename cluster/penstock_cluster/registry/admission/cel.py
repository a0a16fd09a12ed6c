"""Rules in the Common Expression Language: ``x-kubernetes-validations`` and admission policies.

Programs are compiled once and kept. The functions that Kubernetes adds to the language (strings,
lists, quantities) are here; see ADR 0002 for the choice of the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from penstock_cluster.registry.admission.cel_names import undeclared
from penstock_cluster.registry.model import quantity
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.model.fieldset import key_text
from penstock_cluster.registry.model.patterns import go_pattern
from penstock_cluster.registry.model.structural import Schema

_REASONS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
_BUILT_IN = frozenset(
    [
        "size",
        "type",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "dyn",
        "has",
        "all",
        "exists",
        "exists_one",
        "map",
        "filter",
        "matches",
        "contains",
        "startsWith",
        "endsWith",
        "timestamp",
        "duration",
        "max",
        "min",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "none",
        "of",
        "ofNonZeroValue",
        "value",
        "hasValue",
        "orValue",
        "or",
        "optional",
        "list",
        "null_type",
    ]
)


AUTHORIZER_FUNCTIONS = frozenset(
    [
        "group",
        "resource",
        "subresource",
        "namespace",
        "name",
        "path",
        "serviceAccount",
        "check",
        "allowed",
        "reason",
        "errored",
        "error",
    ]
)
"""Those of the variable ``authorizer``, which come with each request (`cel_authorizer`)."""


class CelError(ValueError):
    """An expression does not compile or cannot be evaluated; the message is the compiler's."""


def _as_quantity(text: str) -> str:
    try:
        return str(quantity.value_of(text))
    except quantity.QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: Any) -> bool:
    try:
        quantity.parse(text)
    except (quantity.QuantityError, TypeError):
        return False
    return True


def _compare(left: Any, right: Any) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise CelError(f"index out of range: {start}")
    return text[start:stop]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _find(text: str, pattern: str) -> str:
    found = _pattern(pattern).search(text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


@lru_cache(maxsize=1024)
def _pattern(text: str) -> Any:
    return go_pattern(text)


Functions = Mapping[str, Callable[..., Any]]

_FUNCTIONS: Functions = {
    "quantity": _as_quantity,
    "isQuantity": _is_quantity,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "compareTo": _compare,
    "add": lambda left, right: str(Decimal(left) + Decimal(right)),
    "sub": lambda left, right: str(Decimal(left) - Decimal(right)),
    "sign": lambda value: _compare(value, 0),
    "isInteger": lambda value: Decimal(value) == int(Decimal(value)),
    "asInteger": lambda value: int(Decimal(value)),
    "asApproximateFloat": float,
    "substring": _substring,
    "split": _split,
    "join": lambda items, separator="": separator.join(items),
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "charAt": lambda text, at: text[at : at + 1],
    "indexOf": lambda whole, part: (
        whole.find(part) if isinstance(whole, str) else whole.index(part) if part in whole else -1
    ),
    "lastIndexOf": lambda text, part: text.rfind(part),
    "replace": _replace,
    "find": _find,
    "findAll": _find_all,
    "isSorted": _is_sorted,
    "sum": sum,
}


@cache
def _interpreter() -> Any:
    """Loaded with the first expression: its import is a third of what starting would cost."""
    return import_module("cel")


class Program:
    """One compiled expression."""

    __slots__ = ("_program", "source", "variables")

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self._program = _interpreter().compile(source)
        except ValueError as error:
            text = str(error)
            _, _, listing = text.partition("': ERROR:")
            raise CelError("ERROR:" + listing.replace("\n|", "\n |") if listing else text) from None
        self.variables = frozenset(self._program.variables())
        for name in self._program.functions():
            # Operators appear as names that are no identifiers, e.g. ``_&&_`` or ``@in``.
            if (
                name.isidentifier()
                and not name.startswith("_")
                and name not in _BUILT_IN | _FUNCTIONS.keys() | AUTHORIZER_FUNCTIONS
            ):
                raise CelError(
                    f"ERROR: <input>:1:1: undeclared reference to '{name}' (in container '')"
                )

    def require(self, declared: frozenset[str]) -> None:
        """:class:`CelError` if the expression uses a name that is not declared."""
        message = undeclared(self.source, self.variables, declared)
        if message:
            raise CelError(message)

    def run(self, variables: Json, functions: Functions | None = None) -> Any:
        """The value of the expression; :class:`CelError` when it has none.

        ``functions`` are those that a variable of this request has, besides the usual ones.
        """
        known = {**_FUNCTIONS, **functions} if functions else _FUNCTIONS
        context = _interpreter().Context(variables=variables, functions=known)
        try:
            return self._program.execute(context)
        except KeyError as error:
            raise CelError(f"no such key: {error.args[0]}") from None
        except (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError) as error:
            raise CelError(str(error)) from None


@lru_cache(maxsize=4096)
def compiled(source: str) -> Program:
    """The program of an expression; :class:`CelError` when it does not compile."""
    return Program(source)


class RuleSet:
    """All rules of a schema, run over an object and its previous version.

    Transition rules (those that name ``oldSelf``) run only where the old value is there and can be
    told: by field, by key of a map, by the keys of a keyed list. Where a value did not change, its
    rules are not run: an object that an older schema let in stays writable.
    """

    __slots__ = ("_schema", "_with_rules")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._with_rules: set[int] = set()
        self._mark(schema)

    def _mark(self, schema: Schema) -> bool:
        found = bool(schema.rules)
        for child in schema.properties.values():
            found |= self._mark(child)
        for below in (schema.items, schema.additional):
            if below is not None:
                found |= self._mark(below)
        if found:
            self._with_rules.add(id(schema))
        return found

    def check(self, new: Json, old: Json | None, faults: Faults) -> None:
        if id(self._schema) in self._with_rules:
            self._walk(self._schema, new, old, "", faults)

    def _walk(self, schema: Schema, new: Any, old: Any, path: str, faults: Faults) -> None:
        if new is None or (old is not None and new == old):
            return
        for rule in schema.rules:
            self._run(rule, new, old, path, faults)
        if type(new) is dict:
            before = old if type(old) is dict else {}
            for key, item in new.items():
                inner = schema.child(key)
                if inner is not None and id(inner) in self._with_rules:
                    if key in schema.properties:
                        step = f"{path}.{key}" if path else key
                    else:
                        step = f"{path}[{key}]"
                    self._walk(inner, item, before.get(key), step, faults)
        elif type(new) is list and schema.items is not None:
            if id(schema.items) not in self._with_rules:
                return
            previous = self._by_key(schema, old)
            for index, item in enumerate(new):
                before_item = previous.get(self._key(schema, item)) if previous else None
                self._walk(schema.items, item, before_item, f"{path}[{index}]", faults)

    @staticmethod
    def _key(schema: Schema, item: Any) -> str:
        found = item if type(item) is dict else {}
        return key_text([found.get(key) for key in schema.list_keys])

    def _by_key(self, schema: Schema, old: Any) -> dict[str, Any]:
        if schema.list_type != "map" or type(old) is not list:
            return {}
        return {self._key(schema, item): item for item in old}

    @staticmethod
    def _run(rule: Json, new: Any, old: Any, path: str, faults: Faults) -> None:
        program = compiled(rule["rule"])
        variables = {"self": new}
        if "oldSelf" in program.variables:
            if old is None:
                return
            variables["oldSelf"] = old
        message = rule.get("message") or f"failed rule: {rule['rule']}"
        try:
            if program.run(variables) is True:
                return
            if rule.get("messageExpression"):
                message = str(compiled(rule["messageExpression"]).run(variables))
        except CelError as error:
            message = f"{error} evaluating rule: {rule.get('message') or rule['rule']}"
        field = path + (rule.get("fieldPath") or "")
        reason = rule.get("reason") or "FieldValueInvalid"
        word = _REASONS[reason]
        shown = "" if type(new) in (dict, list) else f"{key_text(new)}: "
        if reason in ("FieldValueForbidden", "FieldValueRequired"):
            shown = ""
        faults.add(field.lstrip(".") if not path else field, reason, f"{word}: {shown}{message}")
