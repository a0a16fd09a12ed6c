"""Runs the command line as ``python -m penstock.cli``."""

from __future__ import annotations

from penstock.cli.main import main

main()
