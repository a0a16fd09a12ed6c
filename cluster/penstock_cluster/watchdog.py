"""Keeps the loops of the cluster's own components going.

A loop that fails by a fault of its own is logged with its traceback and begun again after a pause:
one odd object must not leave a cluster without its binder. Loops are level-triggered, so beginning
again loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 1.0


async def keep_running(loop: Callable[[], Awaitable[None]], name: str) -> None:
    """Run ``loop`` again whenever it fails; returns when it returns."""
    while True:
        try:
            await loop()
        except Exception:
            logger.exception("%s failed; it begins again in %g s", name, PAUSE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return
