"""The controller's decisions: pure functions from what is observed to what is to be done.

Nothing in this package performs I/O, reads a clock or keeps state between calls, so that every
situation a cluster can be in is one value that a test can write down.

`reconcile` answers for one job, `orphan_scale.reconcile_lone_scale` for a Scale whose job is not
there.
"""

from __future__ import annotations

from penstock.controller.reconcile.model.observed import Observed, Settings
from penstock.controller.reconcile.reconcile import reconcile

__all__ = ["Observed", "Settings", "reconcile"]
