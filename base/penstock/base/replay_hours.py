"""How far back past jobs are run again with another placement policy: what may be asked, in hours.

Here, since the command line knows its bounds without loading what goes over the wire.
"""

from __future__ import annotations

from typing import Final

MOST_HOURS: Final = 28 * 24
WEEK_HOURS: Final = 7 * 24
