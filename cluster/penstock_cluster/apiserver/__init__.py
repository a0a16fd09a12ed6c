"""The HTTP side of the embedded cluster: see :func:`serve`."""

from __future__ import annotations

from penstock_cluster.apiserver.kubeconfig_file import kubeconfig
from penstock_cluster.apiserver.server import (
    RunningServer,
    ServeOptions,
    build_app,
    serve,
)

__all__ = ["RunningServer", "ServeOptions", "build_app", "kubeconfig", "serve"]
