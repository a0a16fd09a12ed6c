"""A data worker as a process: its environment, its memory allocator, its log."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys

from penstock.base.enums import Role
from penstock.base.logs import stderr_handler
from penstock.crds import environment as names
from penstock.data import variables
from penstock.data.allocator import begin_again
from penstock.data.cache.interception import install_from
from penstock.data.consuming.process import dispatcher_address, job_token, number_in, share_token
from penstock.data.outliving import watch
from penstock.data.relaying.relay import Relay
from penstock.data.serving.group_reports import GroupReports
from penstock.data.serving.readiness import announce
from penstock.data.serving.siblings import Siblings, whole_cores
from penstock.data.serving.stage_before import STAGE
from penstock.data.serving.worker import DataWorker, work


def run(dispatcher: str | None, *, share_memory: bool, log_format: str, outlives: int = 0) -> None:
    """Run until told to leave.

    ``outlives``: the process that started it, if it is to go on without it while it is needed.

    Raises:
        ValueError: an option or variable cannot be used; says which and why.
    """
    begin_again()
    root = logging.getLogger("penstock")
    root.handlers[:] = [stderr_handler(log_format)]
    root.setLevel(logging.INFO)
    variables.check()
    address = dispatcher or dispatcher_address()
    if address is None:
        raise ValueError(
            f"--dispatcher: none given, and {names.TRAINER_ADDRESS} is not HOST:PORT either: a "
            "data worker has to be told whose it is"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--dispatcher: {address!r}; expected HOST:PORT")
    token = job_token()
    install_from(os.environ)
    _load_early()
    accelerated = os.environ.get(names.ROLE) == Role.ACCELERATED_DATA_WORKER.value
    stage, usual = variables.DATA_STAGE.given(), STAGE if accelerated else 0
    stage = usual if stage is None else stage
    group, asked = _group(), variables.DATA_PROCESSES.given()

    def be_one(number: int) -> None:
        host_here = os.environ.get(names.POD_IP) or "127.0.0.1"
        before = Relay(token, host_here, share_memory=share_memory) if stage else None
        worker = DataWorker(
            token=token,
            dispatcher=address,
            name=os.environ.get(names.POD_NAME, ""),
            node=os.environ.get(names.NODE_NAME, ""),
            rank=number_in(names.RANK),
            incarnation=number_in(names.INCARNATION),
            share_memory=share_memory,
            group=group,
            before=before,
            processes=lambda: siblings.count if in_pod else 1,
        )
        if not number:
            announce(worker)
        if outlives:
            watch(worker, outlives)
        work(worker)

    in_pod = asked > 0 and not stage
    siblings = Siblings(be_one, lambda: whole_cores(asked))
    if not in_pod:
        be_one(0)
    elif code := siblings.run():
        raise SystemExit(code)


def _group() -> GroupReports | None:
    """The job's share group, if it has one whose data workers are to serve all members."""
    address, token = os.environ.get(names.SHARE_ADDRESS, ""), share_token()
    if not address or not token:
        return None
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{names.SHARE_ADDRESS}: {address!r}; expected HOST:PORT")
    return GroupReports(host, int(port), token)


def _load_early() -> None:
    """Load what nearly every pipeline needs while nobody waits for it.

    Not in a thread beside the work: whoever imports a part of a package that another thread is
    loading may get half of it.
    """
    with contextlib.suppress(Exception):  # whoever needs it is told what is wrong with it
        importlib.import_module("torch")


if __name__ == "__main__":
    keeper = int(sys.argv[1]) if sys.argv[1:] else 0
    run(None, share_memory=True, log_format="text", outlives=keeper)
