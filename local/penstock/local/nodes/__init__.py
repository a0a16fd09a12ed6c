"""Nodes of the embedded cluster: declared as data, and looked after when they go."""

from __future__ import annotations

from penstock.local.nodes.declaration import (
    NodeDeclaration,
    NodeDeclarationError,
    read_nodes_file,
    this_machine,
)

__all__ = ["NodeDeclaration", "NodeDeclarationError", "read_nodes_file", "this_machine"]
