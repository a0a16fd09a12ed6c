"""Moved to `penstock.brain.model.measurement`; this name stays for one release."""

from __future__ import annotations

from penstock.brain.model.measurement import *  # noqa: F403  all of its names, as before
