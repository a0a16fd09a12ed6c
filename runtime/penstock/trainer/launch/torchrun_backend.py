"""``torchrun --rdzv-backend=penstock``: what torchrun loads to know of it.

torchrun loads the entry points of group ``torchrun.handlers``, whatever backend it is asked for
(`torch.distributed.elastic.rendezvous.registry`), so nothing else is imported before this one is
meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

BACKEND: Final = "penstock"
NO_RUN_ID: Final = "none"
"""What torchrun passes where ``--rdzv-id`` was not given."""
ALONE: Final = (
    f"--rdzv-backend={BACKEND}: there is no trainer to ask, since PENSTOCK_TRAINER_ADDRESS is not "
    "set: this backend is for the pods of a job, whose command is `penstock run -- torchrun "
    f"--rdzv-backend={BACKEND} --nproc-per-node=N train.py`; on one machine say `torchrun "
    "--standalone --nproc-per-node=N train.py`, or `penstock run --nproc-per-node=N -- train.py`"
)


def handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What makes the handler, as torchrun's registry wants it."""
    return create


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """The handler of this pod.

    Of the parameters the run id counts alone: which pods there are, and how few will do, the job
    says itself, so that ``--nnodes`` and ``--rdzv-endpoint`` are not needed.

    Raises:
        ValueError: this is no pod of a job; says what to do. Or its environment cannot be used.
    """
    from penstock.job import settings
    from penstock.trainer.launch.torchrun_rendezvous import TrainerRendezvous

    try:
        address = settings.trainer_address()
        identity = settings.pod_identity()
    except settings.SettingsError as error:
        raise ValueError(f"--rdzv-backend={BACKEND}: {error}") from error
    if address is None:
        raise ValueError(ALONE)
    asked = parameters.run_id
    run_id = asked if asked and asked != NO_RUN_ID else identity.uid or identity.job
    return TrainerRendezvous(BACKEND, address, identity, run_id)
