"""The old name of what is now :mod:`penstock_cluster.nodes`; it goes with the next release."""

from __future__ import annotations

from penstock_cluster.nodes import (
    NodeDeclaration,
    NodeDeclarationError,
    read_nodes_file,
    this_machine,
)

__all__ = ["NodeDeclaration", "NodeDeclarationError", "read_nodes_file", "this_machine"]
