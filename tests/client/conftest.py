from __future__ import annotations

from tests.client.servers import either

__all__ = ["either"]
