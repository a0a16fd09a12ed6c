"""Placeholders of the recordings: bound on first sight, the same ever after."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?: ?Z| [+-]\d{4} [A-Z]+|[+-]\d\d:\d\d)"
_BOUND = {
    "rv": r"\d+",
    "uid": _UUID,
    "continue": r"[A-Za-z0-9+/=_-]{20,}",
    "token": r"[\w-]+\.[\w-]+\.[\w-]+",
    "gen": r"[bcdfghjklmnpqrstvwxz2456789]{5}",
}
_FREE = {
    "rv": r"\d+",
    "time": _TIME,
    "age": r"\d+[smhdy](?:\d+[smhdy])?",
    "gen": r"[bcdfghjklmnpqrstvwxz2456789]{5}",
    "hash": r"[0-9A-F]+",
    "server": r"[^\s/]+:\d+",
    "scheme": r'[^"]*',
    "pem": r"[\s\S]*",
    **dict.fromkeys(
        (
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ),
        r"[\s\S]*",
    ),
}
PLACEHOLDER = re.compile("<(?:(" + "|".join(_BOUND) + r")-(\d+)|(" + "|".join(_FREE) + "))>")
_LARGE = re.compile(r"^<(\d+)(?: (MiB)(?: \+ (\d+))? of| times) x>$")
_MEBIBYTE = 2**20


@dataclass
class Bindings:
    """The values that placeholders stand for in one replay."""

    values: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Bindings:
        return Bindings(dict(self.values))

    def match(self, recorded: str, got: str) -> bool:
        """Whether ``got`` is what was recorded; binds the placeholders seen for the first time."""
        if "<" not in recorded:
            return recorded == got
        pattern, fresh = self._pattern(recorded)
        found = re.fullmatch(pattern, got)
        if found is None:
            return False
        for name, group in fresh.items():
            if not self._is_in_order(name, found[group]):
                return False
        for name, group in fresh.items():
            self.values[name] = found[group]
        return True

    def _pattern(self, recorded: str) -> tuple[str, dict[str, str]]:
        parts: list[str] = []
        fresh: dict[str, str] = {}
        end = 0
        for token in PLACEHOLDER.finditer(recorded):
            parts.append(re.escape(recorded[end : token.start()]))
            end = token.end()
            kind, _, free = token.groups()
            name = token[0]
            if kind is None:
                parts.append(f"(?:{_FREE[free]})")
            elif name in self.values:
                parts.append(re.escape(self.values[name]))
            elif name in fresh:
                parts.append(f"(?P={fresh[name]})")
            else:
                fresh[name] = f"g{len(fresh)}"
                parts.append(f"(?P<{fresh[name]}>{_BOUND[kind]})")
        parts.append(re.escape(recorded[end:]))
        return "".join(parts), fresh

    def _is_in_order(self, name: str, value: str) -> bool:
        """A later version has a larger number; different placeholders have different values."""
        kind, _, number = name.strip("<>").rpartition("-")
        for other, known in self.values.items():
            other_kind, _, other_number = other.strip("<>").rpartition("-")
            if other_kind != kind:
                continue
            if known == value:
                return False
            if kind == "rv" and (int(number) < int(other_number)) != (int(value) < int(known)):
                return False
        return True

    def unbound(self, text: str) -> list[str]:
        """The placeholders of ``text`` that have no value yet."""
        return [
            token[0]
            for token in PLACEHOLDER.finditer(text)
            if token[1] is not None and token[0] not in self.values
        ]

    def filled(self, text: str) -> str:
        """The text of a request, with values in place of placeholders."""
        large = _LARGE.match(text)
        if large is not None:
            unit = _MEBIBYTE if large[2] else 1
            return "x" * (int(large[1]) * unit + int(large[3] or 0))
        return PLACEHOLDER.sub(lambda token: self.values.get(token[0], token[0]), text)
