"""Moved to `penstock.base.enums`; this name stays for one release."""

from __future__ import annotations

from penstock.base.enums import *  # noqa: F403  all of its names, as before
