"""Shares, sizes, counts and choices that people set in the environment, checked in one place.

A value that nothing can mean is never passed over in silence. Where a command of Penstock is given
it, that is an error (`check`); in a training that runs one line says so, and what is taken instead
(`Variable.now`): no training ends for it. Each says the variable, its value, the rule, and what to
do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from penstock.base.enums import Partition
from penstock.base.quantity import parse_bytes
from penstock.crds import environment as names

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

WEIGHTS_DEFAULT_BYTES: Final = 16 << 30
MOST_PROCESSES: Final = 64
"""Of one data worker's pod."""
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class VariableError(ValueError):
    """A variable whose value cannot be meant; names it, the value, the rule and what to do."""


@dataclass(frozen=True)
class Variable(Generic[Value]):
    """One variable; an empty one is one that is not there.

    Attributes:
        name: as the environment has it.
        absent: its value where it is not there.
        parse: of a text; raises ValueError where that cannot be meant.
        rule: what it must be, and what is meant where it is not there.
        instead: the text that is taken for one that cannot be meant; empty: it is taken as absent.
    """

    name: str
    absent: Value
    parse: Callable[[str], Value]
    rule: str
    instead: str = ""

    def given(self, environ: Mapping[str, str] = os.environ) -> Value:
        """Its value.

        Raises:
            VariableError: it has one that cannot be meant.
        """
        text = environ.get(self.name, "")
        if not text:
            return self.absent
        try:
            return self.parse(text)
        except ValueError:
            raise VariableError(f"{self.name}: {text!r:.100}; must be {self.rule}") from None

    def now(self, environ: Mapping[str, str] = os.environ) -> Value:
        """Its value; for one that cannot be meant what is taken instead, which is said once."""
        try:
            return self.given(environ)
        except VariableError as error:
            _say(str(error), self.instead)
            return self.parse(self.instead) if self.instead else self.absent


@lru_cache(maxsize=64)
def _say(problem: str, instead: str) -> None:
    taken = f"taken as {instead}" if instead else "taken as if it were left out"
    logger.warning("%s; %s", problem, taken)


def check(environ: Mapping[str, str] = os.environ) -> None:
    """Refuse what cannot be meant.

    Raises:
        VariableError: the first such variable.
    """
    for variable in ALL:
        variable.given(environ)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:  # not a number is in no bounds either
        raise ValueError(text)
    return share


def _bytes(text: str) -> int:
    count = parse_bytes(text)
    if count <= 0:
        raise ValueError(text)
    return count


def _whole(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) > most:
            raise ValueError(text)
        return int(text)

    return parse


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(text)
    return _FLAGS[text.lower()]


PARTITION: Final = Variable(
    names.PARTITION,
    Partition.DECLARED,
    lambda text: Partition(text.capitalize()),
    "never, declared or auto, or left out for declared",
)
PARTITION_SHARE: Final = Variable[float | None](
    names.PARTITION_SHARE,
    None,
    _share,
    "a number from 0 to 1, or left out for as much as local workers have time for",
)
DATA_SHARE: Final = Variable[float | None](
    names.DATA_SHARE,
    None,
    _share,
    "a number from 0 to 1, or left out to divide batches by speed",
)
WEIGHTS_BYTES: Final = Variable(
    names.WEIGHTS_BYTES,
    WEIGHTS_DEFAULT_BYTES,
    _bytes,
    "a number of bytes above 0, such as 500Mi or 16Gi, or left out for 16Gi",
)
DATA_STAGE: Final = Variable[int | None](
    names.DATA_STAGE,
    None,
    _whole(1),
    "0, 1 for batched stages, or left out for what the role says",
)
DATA_PROCESSES: Final = Variable(
    names.DATA_PROCESSES,
    0,
    _whole(MOST_PROCESSES),
    f"a whole number of at most {MOST_PROCESSES}, or left out for one process",
)
LINK_CODING: Final = Variable(
    names.LINK_CODING,
    True,
    _flag,
    "0 to send batches as they are, 1, or left out for 1",
)
PINNED_WRITES: Final = Variable(
    names.PINNED_WRITES, False, _flag, "1 to have workers write there, 0, or left out for 0"
)
ENCRYPT_FRAMES: Final = Variable(
    names.ENCRYPT_FRAMES,
    False,
    _flag,
    "1 to encrypt what data connections say, 0, or left out for 0",
    instead="1",  # whoever has set it wants something hidden
)

LATE_COMPILER: Final = Variable(
    names.LATE_COMPILER,
    True,
    _flag,
    "0 to have PyTorch load its compiler early, 1, or left out for 1",
)

ALL: Final[tuple[Variable[Any], ...]] = (
    PARTITION,
    PARTITION_SHARE,
    DATA_SHARE,
    WEIGHTS_BYTES,
    DATA_STAGE,
    DATA_PROCESSES,
    LINK_CODING,
    PINNED_WRITES,
    ENCRYPT_FRAMES,
    LATE_COMPILER,
)
