"""Where unmodified training loops are in their data, and how they go on there in another world."""

from __future__ import annotations

from typing import Final

FOLLOW: Final = "PENSTOCK_FOLLOW_LOADERS"
"""Set to 1 by the launcher: `penstock.trainer.follow.follower` is installed with PyTorch."""
