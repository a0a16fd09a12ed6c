"""How long the controller waits for what, in one place; every wait of a job has its bound here."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

PLAN_AFTER_TRAINER_READY: Final = timedelta(seconds=30)
"""A job starts without a plan when its trainer has been Ready for this long and brought none."""

PLAN_AFTER_ACCEPTANCE: Final = timedelta(minutes=5)
"""A job starts without a plan this long after acceptance, whatever became of its trainer."""

PENDING_TOO_LONG: Final = timedelta(seconds=60)
"""A pod that could not be scheduled for this long is no longer waited for."""

STARTUP_BLOCKED_LIMIT: Final = timedelta(minutes=10)
"""A pod whose image or configuration is bad fails the job after this long."""

PREPARATION: Final = timedelta(minutes=10)
"""How long the trainer may take to prepare a Scale that needs its consent."""

DEAD_POD_RETENTION: Final = timedelta(minutes=5)
"""How long a pod that has ended and been replaced is kept, for its log."""

DATA_WORKER_BACK_OFF: Final = timedelta(seconds=5)
"""Wait before the first replacement of a data worker; doubles with each, up to the next bound."""

DATA_WORKER_BACK_OFF_LIMIT: Final = timedelta(minutes=5)

DATA_WORKER_FAILURES: Final = 3
"""So many failures of data workers within the next window move the input to the workers."""

DATA_WORKER_WINDOW: Final = timedelta(minutes=5)

FINISH_GRACE: Final = timedelta(minutes=5)
"""How long workers may take to exit after the trainer has reported the data exhausted."""

LATE_WORKER_GRACE: Final = timedelta(seconds=20)
"""The same for a worker that came too late to train, once another one has succeeded."""

TOO_LATE_TO_TRAIN: Final = timedelta(seconds=10)
"""A worker that began this short a time before the trainer's end has asked nobody for work."""

STATUS_INTERVAL: Final = timedelta(seconds=1)
"""Counts in a job's status are written at most this often; conditions are written at once."""

SCALING_STATUS_INTERVAL: Final = timedelta(seconds=5)
"""The same while pods come or go: each changes the counts, and the end is written at once."""

CREATED_STATUS_INTERVAL: Final = timedelta(seconds=60)
"""The same where nothing but the number of pods that exist has changed: in less time most of them
start or are found to be unschedulable, which is written with it."""

SCALE_HISTORY: Final = 50
"""Most Scales of one job that no longer count but have not reached the end of their TTL."""

LONE_SCALE_GRACE: Final = timedelta(seconds=30)
"""A Scale whose job cannot be found is given this long before it is refused."""

OBJECTS_RECHECK: Final = timedelta(minutes=10)
"""How long a job's own objects, once seen, need not be made sure of before pods are made."""

OBJECTS_DOUBT: Final = timedelta(seconds=15)
"""The same while a container does not start for something that it refers to."""
