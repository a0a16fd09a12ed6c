"""The forms of names, labels and annotations, with the wording of the real server's refusals."""

from __future__ import annotations

import re
import secrets
from typing import Any

from penstock_cluster.registry.model.errors import Faults

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"

_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_LABEL_RE = re.compile(_LABEL)
_LABEL_1035_RE = re.compile(_LABEL_1035)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_LABEL_VALUE_RE = re.compile(_LABEL_VALUE)
_CONFIG_KEY_RE = re.compile(r"[-._a-zA-Z0-9]+")

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_LABEL_1035}')"
)
QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
QUALIFIED_FORM_RULE = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used "
    f"for validation is '{_QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. "
    "'example.com/MyName')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_LABEL_VALUE}')"
)
CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_PREFIX_LIMIT = 58


def generated(prefix: str) -> str:
    """``prefix`` cut to 58 characters and five random ones."""
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
    return prefix[:_GENERATED_PREFIX_LIMIT] + suffix


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def subdomain_faults(value: str) -> list[str]:
    faults = []
    if len(value) > 253:
        faults.append(_too_long(253))
    if not _SUBDOMAIN_RE.fullmatch(value):
        faults.append(SUBDOMAIN_RULE)
    return faults


def label_faults(value: str) -> list[str]:
    faults = []
    if len(value) > 63:
        faults.append(_too_long(63))
    if not _LABEL_RE.fullmatch(value):
        faults.append(LABEL_RULE)
    return faults


def label_1035_faults(value: str) -> list[str]:
    faults = []
    if len(value) > 63:
        faults.append(_too_long(63))
    if not _LABEL_1035_RE.fullmatch(value):
        faults.append(LABEL_1035_RULE)
    return faults


def path_segment_faults(value: str) -> list[str]:
    """RBAC names: anything that can stand in a path."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in value]


def qualified_name_faults(value: str) -> list[str]:
    """A key of labels, annotations or taints: an optional prefix and a name."""
    faults = []
    prefix, slash, name = value.rpartition("/")
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        elif not _SUBDOMAIN_RE.fullmatch(prefix) or len(prefix) > 253:
            faults.append("prefix part " + SUBDOMAIN_RULE)
        if value.count("/") > 1:
            return [QUALIFIED_FORM_RULE]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append("name part " + _too_long(63))
    if not _QUALIFIED_RE.fullmatch(name):
        faults.append(QUALIFIED_RULE)
    return faults


def label_value_faults(value: str) -> list[str]:
    faults = []
    if len(value) > 63:
        faults.append(_too_long(63))
    if not _LABEL_VALUE_RE.fullmatch(value):
        faults.append(LABEL_VALUE_RULE)
    return faults


def config_key_faults(value: str) -> list[str]:
    faults = []
    if len(value) > 253:
        faults.append(_too_long(253))
    if not _CONFIG_KEY_RE.fullmatch(value):
        faults.append(CONFIG_KEY_RULE)
    return faults


def check_labels(labels: dict[str, Any], path: str, faults: Faults) -> None:
    for key, value in labels.items():
        for why in qualified_name_faults(key):
            faults.invalid(path, f'"{key}"', why)
        for why in label_value_faults(value):
            faults.invalid(path, f'"{value}"', why)


def check_annotations(annotations: dict[str, Any], path: str, faults: Faults) -> None:
    size = 0
    for key, value in annotations.items():
        for why in qualified_name_faults(key.lower()):
            faults.invalid(path, f'"{key}"', why)
        size += len(key.encode()) + len(value.encode())
    if size > ANNOTATIONS_LIMIT_BYTES:
        faults.too_long(path, ANNOTATIONS_LIMIT_BYTES)
