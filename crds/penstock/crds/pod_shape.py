"""The shape of the few fields of a pod template that Penstock reads or writes itself.

The schema keeps a template as written (`penstock.crds.template`): a cluster without a fault may
hold ``env: {A: b}`` or ``initContainers: [null]``, which the API server refuses only when a pod is
made of it. Controller and scheduler read templates before that. Whatever passes here can be read by
both without another look at types; a null counts as an absent field, as in the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Json = Mapping[str, Any]
_Check = Callable[[Any, str], None]

_SHOWN: Final = 80


class TemplateError(ValueError):
    """A field of a pod template is not of the type that Kubernetes gives it."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        super().__init__(f"{field}: {shown}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


def check_template(template: Any, *, partial: bool = False) -> None:
    """Check a pod template; fields are named from the template on (``spec.containers[0].env``).

    Args:
        template: the template.
        partial: whether it is laid over another one, and so needs no containers of its own.

    Raises:
        TemplateError: for the first field at fault.
    """
    _TEMPLATE(template, "")
    if not partial and not (template.get("spec") or {}).get("containers"):
        raise TemplateError("spec.containers", None, "must have at least one container")


def check_pod_spec(spec: Any, where: str = "spec") -> None:
    """Check the spec of a pod or of a template.

    Raises:
        TemplateError: for the first field at fault.
    """
    _POD_SPEC(spec, where)


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise TemplateError(where, value, "must be a string")


def _map_of(check: _Check | None) -> _Check:
    def run(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise TemplateError(where, value, "must be an object")
        if check is not None:
            for key, below in value.items():
                check(below, f"{where}[{key}]")

    return run


def _list_of(check: _Check) -> _Check:
    def run(value: Any, where: str) -> None:
        if not isinstance(value, list | tuple):
            raise TemplateError(where, value, "must be a list")
        for index, below in enumerate(value):
            check(below, f"{where}[{index}]")

    return run


def _object(fields: Mapping[str, _Check], required: tuple[str, ...] = ()) -> _Check:
    def run(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise TemplateError(where or "template", value, "must be an object")
        for name, check in fields.items():
            below, path = value.get(name), f"{where}.{name}" if where else name
            if below is not None:
                check(below, path)
            elif name in required:
                raise TemplateError(path, None, "is required")

    return run


_ANY_MAP: Final = _map_of(None)
_TEXTS: Final = _map_of(_text)
_CONTAINER: Final = _object(
    {
        "name": _text,
        "env": _list_of(_object({"name": _text}, required=("name",))),
        "resources": _object({"requests": _ANY_MAP, "limits": _ANY_MAP}),
    }
)
_EXPRESSIONS: Final = _list_of(
    _object(
        {"key": _text, "operator": _text, "values": _list_of(_text)}, required=("key", "operator")
    )
)
_TERM: Final = _object({"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS})
_NODE_AFFINITY: Final = _object(
    {
        "requiredDuringSchedulingIgnoredDuringExecution": _object(
            {"nodeSelectorTerms": _list_of(_TERM)}
        )
    }
)
_POD_SPEC: Final = _object(
    {
        "containers": _list_of(_CONTAINER),
        "initContainers": _list_of(_CONTAINER),
        "affinity": _object({"nodeAffinity": _NODE_AFFINITY}),
        "tolerations": _list_of(
            _object({"key": _text, "operator": _text, "value": _text, "effect": _text})
        ),
        "nodeSelector": _TEXTS,
        "overhead": _ANY_MAP,
        "schedulingGates": _list_of(_object({"name": _text})),
    }
)
_TEMPLATE: Final = _object(
    {"metadata": _object({"labels": _TEXTS, "annotations": _TEXTS}), "spec": _POD_SPEC}
)
