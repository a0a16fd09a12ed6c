"""Moved to `penstock.base.quantity`; this name stays for one release."""

from __future__ import annotations

from penstock.base.quantity import *  # noqa: F403  all of its names, as before
