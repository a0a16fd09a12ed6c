"""What holds for every test of this distribution, also where it is tested alone.

Property tests look for counterexamples, not for slowness: on a machine that is busy with something
else an example may take any time, and drawing it too.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock-cluster", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock-cluster")
