"""What is done with the batches of one loader beside making them; by the job's partition.

`penstock.data.offloading` for programs that declare functions, `penstock.data.torchpartition` for
those that do not and run with ``--partition auto``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from penstock.base.enums import Partition
from penstock.data.complaints import Complaints
from penstock.data.hooked import NO_DATA_WORKERS
from penstock.data.offloading.loader_calls import calls_of_loader
from penstock.data.protocol import PartitionNote
from penstock.data.torch_loading.single_epochs import SingleEpochs, kind_of
from penstock.data.torch_loading.torch_streams import is_iterable
from penstock.data.torchpartition.looking import FOLDER, looking
from penstock.data.variables import PARTITION

_NOBODY: Final = (
    "nothing moves: nobody but the program itself makes its batches; give it num_workers, or run "
    "the program with --data-workers"
)
_SINGLE: Final = (
    "is not looked at any more: the program makes others like it for each epoch, and what moves "
    "does so from a loader's second epoch on"
)
_complaints: Final = Complaints()
_single_epochs: Final = SingleEpochs()


class LoaderWork(Protocol):
    """Of one loader, from epoch to epoch."""

    def begin_epoch(
        self, why_not: str = "", seed: int | None = None
    ) -> Callable[[Any], Any] | None:
        """What is done with a batch of the epoch where it is made, but not in the program.

        ``why_not``: nothing can be. ``seed``: of the epoch, which whoever makes its batches has.
        """

    def deliver(self, given: Any, *, first: bool = True) -> Any:
        """What the program gets of what was made.

        ``first``: with it a step of the training begins. False: it is a further batch of the step
        under way, whose end with the optimizer has yet to come.
        """

    def end_step(self) -> None:
        """The program wants its next batch, or has no more."""

    def refuse(self, why: str) -> None:
        """Data workers cannot be sent what is to be done."""

    def notes(self) -> Mapping[int, PartitionNote]:
        """What has become of it, for people, by the identity of what it is about.

        Called by another thread than all else.
        """


class Members(Enum):
    """How the members of a group agree on what moves, if the loader's process is in one."""

    FOUND = "found"
    """By the store of PyTorch's group, if there is one."""
    TOLD = "told"
    """Whoever has the loader exchanges what they say (`GroupSteps`)."""
    NONE = "none"


def work_of_loader(
    loader: Any,
    members: Members = Members.FOUND,
    *,
    before: LoaderWork | None = None,
    again: bool = False,
) -> LoaderWork | None:
    """For a loader that begins an epoch; None: there is nothing to do.

    ``before``: of the epochs before, if there were any (``again``), and anything to do in them.
    """
    if before is not None:
        if again:
            _single_epochs.begin_again(kind_of(loader))
        return before
    declared = calls_of_loader()
    if declared is not None or PARTITION.now() is not Partition.AUTO:
        return declared
    name = f"the loader of {type(loader.dataset).__qualname__}"
    if not os.environ.get(FOLDER) and not _may_move(loader, name, again=again):
        return None
    from penstock.data.torchpartition.group_log import steps_in_group
    from penstock.data.torchpartition.group_steps import GroupSteps
    from penstock.data.torchpartition.loader_steps import LoaderSteps

    look = looking(name, os.environ)
    if look is None and members is Members.TOLD:
        return GroupSteps(name)
    found = steps_in_group(name) if look is None and members is Members.FOUND else None
    steps = found or LoaderSteps(name, look)
    steps.announces = again or _single_epochs.may_have_more(kind_of(loader))
    return steps


def _may_move(loader: Any, name: str, *, again: bool) -> bool:
    """Whether anything of its steps can be made elsewhere in an epoch to come."""
    if not loader.num_workers and os.environ.get(NO_DATA_WORKERS):
        _complaints.add(f"partition: {name}:", _NOBODY)
        return False
    kind = kind_of(loader)
    if again:
        _single_epochs.begin_again(kind)  # it will have more of them
    elif not _single_epochs.begin(kind):
        _complaints.add(f"partition: {name}:", _SINGLE)
        return False
    return True


def batch_stage(
    calls: LoaderWork | None, loader: Any, seed: int | None = None, *, shared: bool = False
) -> Callable[[Any], Any] | None:
    """What is done with a batch of the next epoch where it is made, but not in the program.

    ``seed``: that batches of the epoch are made with, if that is known.
    """
    if calls is None:
        return None
    why = ""
    if shared:
        why = "its loader's batches are shared with other programs"
    elif is_iterable(loader):
        why = "its loader iterates its dataset instead of asking for samples by index"
    elif loader.persistent_workers:
        why = "its loader has persistent workers, which are what they were when they began"
    return calls.begin_epoch(why, seed)
