"""The commands of this room: ``penstock sim`` and one command per simulator below it.

Each simulator has its own package with its own commands; this module only lists them.
"""

from __future__ import annotations

import typer

from penstock.sim.cluster.commands import detach, fgd, table5
from penstock.sim.cluster.stage_commands import fragments, table4, tuning
from penstock.sim.offload.commands import offload
from penstock.sim.pricing.commands import pricing
from penstock.sim.ps.commands import create, ps
from penstock.sim.sharing.commands import sharing
from penstock.sim.week.commands import week

sim = typer.Typer(
    help="Simulators: reproduce published results, and try policies before a cluster does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sim.command()(fgd)
sim.command()(detach)
sim.command()(table4)
sim.command()(table5)
sim.command()(fragments)
sim.command()(tuning)
sim.command()(ps)
sim.command()(create)
sim.command()(offload)
sim.command()(sharing)
sim.command()(week)
sim.command()(pricing)
