"""The final figures of a training: one line of its log, and part of what its trainer knows."""

from __future__ import annotations

import json
import math
import operator
import sys
from collections.abc import Mapping
from typing import Any, Final

RESULT_MARK: Final = "penstock-result "


def published(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as JSON has them, printed: by now the training is done, and no figure may fail it.

    One that is not finite becomes null, and what is no number its text.
    """
    result = {name: _plain(value) for name, value in figures.items()}
    sys.stdout.write(f"{RESULT_MARK}{json.dumps(result)}\n")
    sys.stdout.flush()
    return result


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        return str(value)
    return number if math.isfinite(number) else None
