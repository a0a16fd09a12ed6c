"""Moved to `penstock.wire`; this name stays for one release."""

from __future__ import annotations

from penstock.wire import *  # noqa: F403  all of its names, as before
