"""A child writes into its parent's memory."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import pytest

from penstock.data.transport import remote_write
from penstock.data.transport.batch_codec import pack
from penstock.data.transport.layout import unpack
from penstock.data.transport.remote_write import RemoteWriter, allow_descendants

# To fork beside threads of other tests' is what local workers do, too.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def in_child(work: Any) -> int:
    """Run it in a forked process; its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            work()
            code = 0
        except OSError as error:
            code = error.errno or 98
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("count", [1, 3, 2500])
def test_a_batch_arrives_bit_by_bit(count: int) -> None:
    batch = {str(n): np.random.default_rng(n).random((5, 7 + n % 3)) for n in range(count)}
    packed = pack(batch)
    memory = np.full(packed.size + 64, 255, np.uint8)
    address, parent = memory.ctypes.data, os.getpid()
    allow_descendants()
    assert in_child(lambda: RemoteWriter(parent).write(address, packed.parts)) == 0
    arrived = unpack(packed.structure, memory, packed.size)
    assert all(np.array_equal(batch[key], arrived[key]) for key in batch)
    assert (memory[packed.size :] == 255).all(), "not a byte more"


def test_a_write_that_stops_short_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = remote_write.process_vm_writev

    def short(pid: int, local: Any, count: int, address: int, size: int) -> int:
        local[0].length = min(local[0].length, 1000)
        return whole(pid, local, 1, address, local[0].length)

    monkeypatch.setattr(remote_write, "process_vm_writev", short)
    source = np.random.default_rng(1).integers(0, 255, 10_500, np.uint8)
    target = np.zeros_like(source)
    address, parent = target.ctypes.data, os.getpid()
    allow_descendants()
    assert in_child(lambda: RemoteWriter(parent).write(address, [source, b"abc"][:1])) == 0
    assert np.array_equal(source, target)


def test_what_cannot_be_written_to_is_an_error() -> None:
    parent = os.getpid()
    allow_descendants()
    assert in_child(lambda: RemoteWriter(parent).write(4096, [b"abc"])) == errno.EFAULT


def test_a_process_that_is_gone_is_not_written_to() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, and keeps its number
    writer = RemoteWriter(child)
    try:
        with pytest.raises(ProcessLookupError):
            writer.write(4096, [b"abc"])
    finally:
        writer.close()
        os.waitpid(child, 0)
