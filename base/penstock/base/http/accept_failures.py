"""One line in a while where asyncio cannot accept connections, instead of a thousand a second.

While a process has no descriptors left, asyncio tries once for each place in the queue, once a
second, and each time reports an exception with its traceback: megabytes a second for as long as
strangers hold their connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from penstock.base.log_limit import LogLimit

logger = logging.getLogger(__name__)

_ACCEPTING: Final = "socket.accept()"


def limit_accept_failures(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop say such a failure once in a while; all else goes where it went before."""
    limit, before = LogLimit(), loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message", ""))
        if _ACCEPTING in message:
            limit.log(logger, logging.ERROR, "%s: %s", message, context.get("exception"))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
