"""``python -m penstock_cluster`` is the command ``penstock-cluster``."""

from __future__ import annotations

import sys

from penstock_cluster.commands import main

sys.exit(main())
