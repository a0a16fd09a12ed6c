"""Regular expressions as the real API server has them: Go's, whose engine is RE2.

They come from clients, in schemas and in CEL, and are matched against what clients send. RE2 takes
time linear in the text whatever the pattern is; Python's own engine takes exponential time for
``^(a+)+$``, and the server would hang.
"""

from __future__ import annotations

from typing import Any

import re2


class PatternError(ValueError):
    """A text is no regular expression of Go's."""


def go_pattern(text: str) -> Any:
    """A compiled pattern, with ``search`` and ``finditer``.

    Raises:
        PatternError: with the words of Go's parser, nearly.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        (why,) = error.args
        shown = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise PatternError(f"error parsing regexp: {shown}") from None
