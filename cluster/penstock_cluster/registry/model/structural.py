"""Structural schemas of CRDs: defaulting, pruning and validation of custom resources.

The wording, the reasons and the conditions under which CEL is skipped are those of the real
server: a fault of type, enum, required, length or count hides CEL and is announced by an extra
cause with field ``<nil>``; faults of range and pattern do not.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from penstock_cluster.registry.model.documents import thaw
from penstock_cluster.registry.model.errors import Faults, Json
from penstock_cluster.registry.model.fieldset import key_text
from penstock_cluster.registry.model.patterns import go_pattern
from penstock_cluster.registry.model.shape import Shape

_INT_BOUNDS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


class Schema:
    """One node of a structural schema, compiled. Immutable."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "default",
        "embedded",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "format",
        "has_default",
        "int_or_string",
        "items",
        "list_keys",
        "list_type",
        "map_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "needs_defaults",
        "negated",
        "nullable",
        "one_of",
        "pattern",
        "preserve",
        "properties",
        "raw",
        "required",
        "rules",
        "type",
        "unique_items",
    )

    def __init__(self, raw: Json) -> None:
        self.raw = raw
        self.type: str = raw.get("type", "")
        self.format: str = raw.get("format", "")
        self.nullable: bool = raw.get("nullable", False)
        self.int_or_string: bool = raw.get("x-kubernetes-int-or-string", False)
        self.preserve: bool = raw.get("x-kubernetes-preserve-unknown-fields", False) or False
        self.embedded: bool = raw.get("x-kubernetes-embedded-resource", False)
        self.list_type: str = raw.get("x-kubernetes-list-type", "atomic")
        self.list_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.map_type: str = raw.get("x-kubernetes-map-type", "granular")
        self.has_default = "default" in raw
        self.default: Any = raw.get("default")
        self.enum: list[Any] | None = raw.get("enum")
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.minimum = raw.get("minimum")
        self.maximum = raw.get("maximum")
        self.exclusive_minimum: bool = raw.get("exclusiveMinimum", False)
        self.exclusive_maximum: bool = raw.get("exclusiveMaximum", False)
        self.multiple_of = raw.get("multipleOf")
        self.min_length = raw.get("minLength")
        self.max_length = raw.get("maxLength")
        self.min_items = raw.get("minItems")
        self.max_items = raw.get("maxItems")
        self.unique_items: bool = raw.get("uniqueItems", False)
        self.min_properties = raw.get("minProperties")
        self.max_properties = raw.get("maxProperties")
        self.pattern = go_pattern(raw["pattern"]) if raw.get("pattern") else None
        self.properties = {
            name: Schema(item) for name, item in (raw.get("properties") or {}).items()
        }
        items = raw.get("items")
        self.items = Schema(items) if isinstance(items, dict) else None
        additional = raw.get("additionalProperties")
        self.additional = Schema(additional) if isinstance(additional, dict) else None
        if additional is True:
            self.preserve = True
        self.all_of = [Schema(item) for item in raw.get("allOf") or ()]
        self.any_of = [Schema(item) for item in raw.get("anyOf") or ()]
        self.one_of = [Schema(item) for item in raw.get("oneOf") or ()]
        self.negated = Schema(raw["not"]) if raw.get("not") else None
        self.rules: list[Json] = raw.get("x-kubernetes-validations") or []
        self.needs_defaults: bool = (
            any(child.has_default or child.needs_defaults for child in self.properties.values())
            or (self.items is not None and self.items.needs_defaults)
            or (self.additional is not None and self.additional.needs_defaults)
        )

    def child(self, name: str) -> Schema | None:
        found = self.properties.get(name)
        return found if found is not None else self.additional

    def shape(self) -> Shape:
        """The same node as merging and field ownership see it."""
        if self.int_or_string:
            return Shape("int-or-string")
        if self.type == "array":
            shape = Shape("list", items=self.items.shape() if self.items else None)
            if self.list_type in ("set", "map"):
                shape.list_kind = "set" if self.list_type == "set" else "map"
            shape.keys = self.list_keys
            if self.items is not None:
                shape.key_defaults = {
                    key: self.items.properties[key].default
                    for key in self.list_keys
                    if key in self.items.properties and self.items.properties[key].has_default
                }
            return shape
        if self.type == "object" or self.properties or self.additional is not None:
            atomic = self.map_type == "atomic"
            if self.additional is not None:
                return Shape("map", items=self.additional.shape(), atomic=atomic)
            fields = {name: child.shape() for name, child in self.properties.items()}
            if not fields and self.preserve:
                return Shape("any", open=True, atomic=atomic)
            return Shape("object", fields=fields, open=self.preserve, atomic=atomic)
        if self.type in ("string", "integer", "number", "boolean"):
            # The condition above leaves the literals.
            return Shape(self.type)  # type: ignore[arg-type]
        return Shape("any", open=True)

    def admit(self, value: Any, path: str, unknown: list[str]) -> Any:
        """A copy of ``value``, pruned and defaulted; ``unknown`` gains the paths cut off."""
        if type(value) is dict:
            if not self.properties and self.additional is None:
                if self.preserve or not self.type:
                    return thaw(value)
                unknown.extend(f"{path}.{key}" if path else key for key in value)
                return {}
            return self._admit_map(value, path, unknown)
        if type(value) is list:
            if self.items is None:
                return thaw(value)
            items = self.items
            return [items.admit(item, f"{path}[{at}]", unknown) for at, item in enumerate(value)]
        return value

    def _admit_map(self, value: Json, path: str, unknown: list[str]) -> Json:
        admitted: Json = {}
        properties, additional = self.properties, self.additional
        for key, item in value.items():
            child = properties.get(key) or additional
            if child is None:
                if self.preserve:
                    admitted[key] = thaw(item)
                else:
                    unknown.append(f"{path}.{key}" if path else key)
                continue
            if item is None:
                if child.nullable or (child.preserve and not child.type):
                    admitted[key] = None
                continue
            if type(item) is dict or type(item) is list:
                admitted[key] = child.admit(item, f"{path}.{key}" if path else key, unknown)
            else:
                admitted[key] = item
        for key, child in properties.items():
            if child.has_default and key not in admitted:
                admitted[key] = child.admit(thaw(child.default), "", [])
        return admitted

    def defaulted(self, value: Any) -> Any:
        """``value`` with the defaults it lacks; the value itself when it lacks none."""
        if not self.needs_defaults:
            return value
        if type(value) is list and self.items is not None:
            done = [self.items.defaulted(item) for item in value]
            return done if any(a is not b for a, b in zip(done, value, strict=True)) else value
        if type(value) is not dict:
            return value
        changed: Json = {}
        for key, child in self.properties.items():
            if key in value:
                done = child.defaulted(value[key])
                if done is not value[key]:
                    changed[key] = done
            elif child.has_default:
                changed[key] = child.admit(thaw(child.default), "", [])
        if self.additional is not None:
            for key, item in value.items():
                if key not in self.properties:
                    done = self.additional.defaulted(item)
                    if done is not item:
                        changed[key] = done
        return {**value, **changed} if changed else value


class Validation:
    """Checks one value against a schema.

    ``prefix`` goes before the path in a cause's field but not in its message: the status path
    validates the status alone, and its messages show it.
    """

    __slots__ = ("blocks_rules", "faults", "prefix")

    def __init__(self, faults: Faults, prefix: str = "") -> None:
        self.faults = faults
        self.prefix = prefix
        #: A fault that makes it unsafe to run CEL rules.
        self.blocks_rules = False

    def _field(self, path: str) -> str:
        if not self.prefix:
            return path
        return f"{self.prefix}.{path}" if path else self.prefix

    def _invalid(self, path: str, shown: str, why: str) -> None:
        self.faults.invalid(self._field(path), shown, f"{path} in body {why}")

    def _type_fault(self, path: str, actual: str, wanted: str) -> None:
        message = f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"'
        self.faults.add(self._field(path), "FieldValueTypeInvalid", message)
        self.blocks_rules = True

    def check(self, schema: Schema, value: Any, path: str) -> None:
        if value is None:
            if not schema.nullable and (schema.type or schema.int_or_string):
                wanted = "integer,string" if schema.int_or_string else schema.type
                self._type_fault(path, "null", wanted)
            return
        typed = self._check_type(schema, value, path)
        if schema.enum is not None and value not in schema.enum:
            supported = [item if type(item) is str else key_text(item) for item in schema.enum]
            self.faults.unsupported(self._field(path), key_text(value), supported)
            self.blocks_rules = True
        if typed:
            if type(value) is dict:
                self._check_map(schema, value, path)
            elif type(value) is list:
                self._check_list(schema, value, path)
            elif type(value) is str:
                self._check_text(schema, value, path)
            elif type(value) is not bool:
                self._check_number(schema, value, path)
        self._check_combinations(schema, value, path)

    def _check_type(self, schema: Schema, value: Any, path: str) -> bool:
        actual = json_type(value)
        if schema.int_or_string:
            if actual in ("integer", "string"):
                return True
            self._type_fault(path, actual, "integer,string")
            return False
        wanted = schema.type
        if not wanted or wanted == actual or (wanted == "number" and actual == "integer"):
            return self._check_format(schema, value, path)
        if wanted == "integer" and actual == "number":
            if value.is_integer():
                return True
            if schema.format in _INT_BOUNDS:
                self._type_fault(path, "float64", schema.format)
            else:
                self._type_fault(path, actual, wanted)
            self._unchecked_integer(schema, path)
            return False
        self._type_fault(path, actual, wanted)
        return False

    def _unchecked_integer(self, schema: Schema, path: str) -> None:
        form = f"with format {schema.format}" if schema.format else "(default format)"
        message = f"Checked value must be of type integer {form} in {path}"
        self.faults.invalid("<nil>", '""', message)

    def _check_format(self, schema: Schema, value: Any, path: str) -> bool:
        if schema.format in _INT_BOUNDS and type(value) is int:
            low, high = _INT_BOUNDS[schema.format]
            if not low <= value <= high:
                self._unchecked_integer(schema, path)
        elif type(value) is str and schema.format and not _has_format(schema.format, value):
            message = f"{path} in body must be of type {schema.format}: {key_text(value)}"
            self.faults.add(
                self._field(path),
                "FieldValueTypeInvalid",
                f"Invalid value: {key_text(value)}: {message}",
            )
            self.blocks_rules = True
        return True

    def _check_number(self, schema: Schema, value: float, path: str) -> None:
        shown = key_text(value)
        if schema.minimum is not None:
            if schema.exclusive_minimum and value <= schema.minimum:
                self._invalid(path, shown, f"should be greater than {_bound(schema.minimum)}")
            elif value < schema.minimum:
                bound = _bound(schema.minimum)
                self._invalid(path, shown, f"should be greater than or equal to {bound}")
        if schema.maximum is not None:
            if schema.exclusive_maximum and value >= schema.maximum:
                self._invalid(path, shown, f"should be less than {_bound(schema.maximum)}")
            elif value > schema.maximum:
                bound = _bound(schema.maximum)
                self._invalid(path, shown, f"should be less than or equal to {bound}")
        if schema.multiple_of and value % schema.multiple_of:
            self._invalid(path, shown, f"should be a multiple of {_bound(schema.multiple_of)}")

    def _check_text(self, schema: Schema, value: str, path: str) -> None:
        """The first of too long, too short and not matching, as the real validator stops there."""
        if schema.max_length is not None and len(value) > schema.max_length:
            self.faults.too_long(self._field(path), schema.max_length)
            self.blocks_rules = True
        elif schema.min_length is not None and len(value) < schema.min_length:
            why = f"should be at least {schema.min_length} chars long"
            self._invalid(path, key_text(value), why)
        elif schema.pattern is not None and not schema.pattern.search(value):
            self._invalid(path, key_text(value), f"should match '{schema.raw['pattern']}'")

    def _too_many(self, path: str, count: int, limit: int) -> None:
        message = f"Too many: {count}: must have at most {limit} items"
        self.faults.add(self._field(path), "FieldValueTooMany", message)
        self.blocks_rules = True

    def _check_list(self, schema: Schema, value: list[Any], path: str) -> None:
        count = len(value)
        if schema.min_items is not None and count < schema.min_items:
            self._invalid(path, str(count), f"should have at least {schema.min_items} items")
        if schema.max_items is not None and count > schema.max_items:
            self._too_many(path, count, schema.max_items)
        if schema.items is not None:
            for index, item in enumerate(value):
                self.check(schema.items, item, f"{path}[{index}]")

    def _check_map(self, schema: Schema, value: Json, path: str) -> None:
        count = len(value)
        for name in schema.required:
            if name not in value:
                self.faults.required(self._field(f"{path}.{name}" if path else name))
                self.blocks_rules = True
        if schema.min_properties is not None and count < schema.min_properties:
            why = f"should have at least {schema.min_properties} properties"
            self._invalid(path, str(count), why)
        if schema.max_properties is not None and count > schema.max_properties:
            self._too_many(path, count, schema.max_properties)
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                self.check(child, item, f"{path}.{key}" if path else key)

    def _check_combinations(self, schema: Schema, value: Any, path: str) -> None:
        for branch in schema.all_of:
            self.check(branch, value, path)
        for branches, exactly_one in ((schema.any_of, False), (schema.one_of, True)):
            if not branches:
                continue
            trials = [self._trial(branch, value, path) for branch in branches]
            passed = sum(not trial for trial in trials)
            if passed == 0 or (exactly_one and passed > 1):
                word = (
                    "one and only one schema (oneOf)"
                    if exactly_one
                    else "at least one schema (anyOf)"
                )
                self.faults.invalid("<nil>", '""', f'"{path}" must validate {word}')
                if passed == 0:
                    self.faults.items.extend(trials[0])
                self.blocks_rules = True
        if schema.negated is not None and not self._trial(schema.negated, value, path):
            message = f'"{path}" must not validate the schema (not)'
            self.faults.invalid("<nil>", '""', message)
            self.blocks_rules = True

    def _trial(self, schema: Schema, value: Any, path: str) -> list[Any]:
        faults = Faults()
        Validation(faults, self.prefix).check(schema, value, path)
        return faults.items

    def check_lists(self, schema: Schema, value: Any, path: str) -> None:
        """Duplicates in sets and keyed lists; the path in the cause counts from the root."""
        if type(value) is list:
            if schema.list_type == "set":
                self._duplicates(path, [key_text(item) for item in value])
            elif schema.list_type == "map":
                keys = []
                for item in value:
                    found = item if type(item) is dict else {}
                    keys.append(key_text({key: found.get(key) for key in schema.list_keys}))
                self._duplicates(path, keys)
            if schema.items is not None:
                for index, item in enumerate(value):
                    self.check_lists(schema.items, item, f"{path}[{index}]")
        elif type(value) is dict:
            for key, item in value.items():
                if type(item) not in (dict, list):
                    continue
                child = schema.child(key)
                if child is not None:
                    declared = key in schema.properties
                    step = (f"{path}.{key}" if path else key) if declared else f"{path}[{key}]"
                    self.check_lists(child, item, step)

    def _duplicates(self, path: str, keys: list[str]) -> None:
        seen: set[str] = set()
        for index, key in enumerate(keys):
            if key in seen:
                self.faults.duplicate(f"{self._field(path)}[{index}]", key)
            seen.add(key)


def json_type(value: Any) -> str:
    if type(value) is bool:
        return "boolean"
    if type(value) is str:
        return "string"
    if type(value) is int:
        return "integer"
    if type(value) is float:
        return "number"
    if type(value) is dict:
        return "object"
    if type(value) is list:
        return "array"
    return "null"


def _bound(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _has_format(form: str, value: str) -> bool:
    if form == "date-time":
        if not _DATE_TIME.fullmatch(value):
            return False
        try:
            datetime.fromisoformat(value.replace("z", "Z"))
        except ValueError:
            return False
        return True
    if form == "date":
        try:
            datetime.strptime(value, "%Y-%m-%d")  # noqa: DTZ007  only whether it is a date
        except ValueError:
            return False
        return True
    if form == "uuid":
        return re.fullmatch(r"(?i)[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", value) is not None
    return True
