"""Runs algorithms where they can do no harm: in processes of their own.

An algorithm is a plugin, and may raise, hang, crash, answer nonsense or eat memory. Each of these
ends as the outcome of one call; neither the Brain nor another call notices.
"""

from __future__ import annotations

from penstock.brain.executor.pool import Executor
from penstock.brain.executor.task import Outcome, Task, TaskResult, TaskRunner

__all__ = ["Executor", "Outcome", "Task", "TaskResult", "TaskRunner"]
