"""Accelerator kinds as small integers, which fit into a column."""

from __future__ import annotations

from collections.abc import Sequence


class KindCodes:
    """A code for every kind that some node has had; it stays the same."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, kind: str) -> int:
        """The code of a kind, which gets one if it has none."""
        code = self._codes.setdefault(kind, len(self._codes))
        if code == len(self._names):
            self._names.append(kind)
        return code

    def codes(self, kinds: Sequence[str]) -> list[int]:
        """Codes of those of the kinds that have one."""
        return [self._codes[kind] for kind in kinds if kind in self._codes]

    def name(self, code: int) -> str:
        """The kind of a code."""
        return self._names[code]
