"""Takes over a changed configuration file while the Brain runs.

A ConfigMap is replaced in place by the kubelet, without a signal: so the file's content is looked
at every few seconds. A file that cannot be used is reported, once, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from penstock.api.auth.tokens import ApiTokens
from penstock.brain.assembly import Brain
from penstock.brain.configuration import BrainSettings, ConfigurationError, load
from penstock.brain.registry import RegistryError

logger = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 2.0


class ConfigurationWatch:
    """Looks at one file until cancelled."""

    def __init__(
        self, path: Path, overrides: Mapping[str, Any], brain: Brain, tokens: ApiTokens | None
    ) -> None:
        self._path = path
        self._overrides = overrides
        self._brain = brain
        self._tokens = tokens
        self._settings: BrainSettings = brain.settings
        self._refused = ""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once, and take over what has changed."""
        try:
            settings = await asyncio.to_thread(load, self._path, self._overrides)
            if settings == self._settings:
                self._refused = ""
                return
            await self._brain.configure(settings)
        except (ConfigurationError, RegistryError, SQLAlchemyError) as error:
            if str(error) != self._refused:
                self._refused = str(error)
                logger.error("the changed configuration is not used: %s", error)
            return
        if self._tokens is not None:
            self._tokens.replace(settings.tokens)
        self._settings, self._refused = settings, ""
        logger.info("took over the changed configuration %s", self._path)
