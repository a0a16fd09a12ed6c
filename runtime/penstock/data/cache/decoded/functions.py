"""Functions of a file whose results come from the cache instead of being made again.

Which of a dataset's steps are the same each time only the program knows; here it has said so, by
being an ImageFolder (whose `loader` is given a path) or by ``Stage(function, random=False)``. That
is believed as far as it is seen: the first results are made twice, the first that come from the
cache are made as well, and one in `EVERY` after that. A function that draws random numbers, or
whose result differs once by a bit, is called as ever from then on, and one line says so.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.data.cache.decoded.exchange import Client, ResultExchange
from penstock.data.cache.decoded.identity import function_digest
from penstock.data.cache.decoded.results import decoded, encoded
from penstock.data.cache.policy import key_of
from penstock.data.errors import DataError
from penstock.data.generator_states import Draws
from penstock.data.stages import datasets_of

logger = logging.getLogger(__name__)

FIRST: Final = 4
"""Results that are made twice before they are kept, and as many that are found."""
EVERY: Final = 128
"""One of so many that are found is made as well."""
MOST_FUNCTIONS: Final = 256


class Files(Protocol):
    """The files of a cache, as this process reads them (`penstock.data.cache.interception`)."""

    @property
    def client(self) -> Client:
        """The connection to the daemon."""

    def below(self, file: Any) -> tuple[str, str] | None:
        """The path of the cache that a file is below, and its name; None: it is below none."""

    def bypassed(self) -> AbstractContextManager[None]:
        """Have this thread read files as without a cache."""


class KeptFunction:
    """A function of a file, as this process calls it."""

    def __init__(self, function: Callable[[Any], Any], one: Files, results: ResultExchange) -> None:
        self.function = function
        self._one, self._results = one, results
        self._digest = function_digest(function)
        self._made = self._found = 0
        if self._digest is None:
            self._leave("it cannot be seen what it does")

    def __call__(self, file: Any, *others: Any, **named: Any) -> Any:
        """As the function; its result is the caller's own.

        Raises:
            Exception: whatever the function raises.
        """
        digest = self._digest
        place = None
        if digest is not None and not others and not named and isinstance(file, str | os.PathLike):
            place = self._one.below(file)
        if digest is None or place is None:
            return self.function(file, *others, **named)
        try:
            if not stat.S_ISREG(Path(file).stat().st_mode):  # a FIFO is read once, and waited for
                return self.function(file)
            with self._one.bypassed():
                descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return self.function(file)  # which says what is wrong with it
        try:
            content, wanted = self._results.ask(descriptor, place[0], digest)
            if content is not None:
                return self._check_found(file, content)
            if not wanted:
                return self.function(file)
            return self._make(file, descriptor, place[0], digest)
        finally:
            os.close(descriptor)

    def _check_found(self, file: Any, content: bytearray) -> Any:
        self._found += 1
        checked = self._found <= FIRST or not self._found % EVERY
        kept = bytes(content) if checked else b""  # before the caller may write into it
        try:
            found = decoded(content)
        except DataError as error:
            self._leave(f"what was kept cannot be read: {error}")
            return self.function(file)
        if not checked:
            return found
        made, why = self._made_still(file)
        if why is None and encoded(made) != kept:
            why = f"its result for {file} is another than the one that was kept"
        if why is not None:
            self._leave(why)
        return made

    def _make(self, file: Any, descriptor: int, path: str, digest: bytes) -> Any:
        """Make a result, and have it kept if it can be relied on."""
        self._made += 1
        before = os.fstat(descriptor)
        made, why = self._made_still(file)
        body = encoded(made) if why is None else None
        if why is None and body is None:
            why = f"its result is a {type(made).__module__}.{type(made).__qualname__}"
        elif body is not None and self._made <= FIRST:
            again, why = self._made_still(file)
            if why is None and not encoded(again) == encoded(decoded(bytearray(body))) == body:
                why = f"its result for {file} is another each time"
        if why is not None:
            self._leave(why)
        elif body is not None and _is_still(file, before):
            self._results.keep(descriptor, path, digest, body)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # it is not read again
        return made

    def _made_still(self, file: Any) -> tuple[Any, str | None]:
        """A result, and what is wrong with the function."""
        with self._one.bypassed():
            draws = Draws()
            made = self.function(file)
            seen = draws.seen()
        return made, "it draws random numbers" if seen else None

    def _leave(self, why: str) -> None:
        if self._digest is not None or not self._made:
            name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
            logger.warning("the results of %s are not kept, it is called as ever: %s", name, why)
        self._digest = None


def _is_still(file: Any, before: os.stat_result) -> bool:
    """Whether the name is of the file that it was of, and that is as it was."""
    try:
        return key_of(Path(file).stat()) == key_of(before)
    except OSError:
        return False


class KeptFunctions:
    """Those of a process."""

    def __init__(self, one: Files) -> None:
        self._one = one
        self._results = ResultExchange(lambda: one.client)
        self._of: dict[int, KeptFunction] = {}  # by number; each keeps its function alive

    def of(self, function: Callable[[Any], Any]) -> KeptFunction:
        """A function as it is to be called."""
        found = self._of.get(id(function))
        if found is None:
            if len(self._of) >= MOST_FUNCTIONS:
                self._of.clear()
            found = self._of[id(function)] = KeptFunction(function, self._one, self._results)
        return found

    @contextmanager
    def loading(self, dataset: Any) -> Iterator[None]:
        """Have the loaders of a dataset, and of those in it, be kept ones meanwhile."""
        replaced: list[tuple[Any, Any]] = []
        try:
            for holder in datasets_of(dataset):
                loader = getattr(holder, "__dict__", {}).get("loader")
                if callable(loader) and not isinstance(loader, KeptFunction):
                    replaced.append((holder, loader))
                    vars(holder)["loader"] = self.of(loader)
            yield
        finally:
            for holder, loader in replaced:
                vars(holder)["loader"] = loader
