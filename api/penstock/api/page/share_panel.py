"""What a job shares with others, as the page shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.brain.model.share_figures import ShareFigures


@dataclass(frozen=True, slots=True)
class SharePanel:
    """Everything that the template shows."""

    group: str
    members: str
    tiles: str
    times: str
    """How often each tile that was made was taken; empty where none was."""
    workers: str
    behind: str


def share_panel(figures: ShareFigures, members: Sequence[str]) -> SharePanel:
    """A share group in words."""
    worth = figures.made and figures.taken
    return SharePanel(
        group=figures.group,
        members=", ".join(members),
        tiles=f"{figures.made:,} made, {figures.taken:,} taken",
        times=f"{figures.taken / figures.made:.2f}" if worth else "",
        workers=f"{figures.data_workers} of all members, {figures.own_data_workers} of this job",
        behind=f"{figures.lag_tiles:,} tiles" if figures.lag_tiles else "no tile",
    )
