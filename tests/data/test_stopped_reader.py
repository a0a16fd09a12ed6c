"""A program that stands still and takes nothing costs the others of its data worker nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data import Loader
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.worker import DataWorker
from penstock.data.transport import outbox
from tests.data import planes
from tests.data.planes import TOKEN, Plain, end, eventually, same
from tests.patience import patient

PROGRAM = """
import hashlib, json, os, sys, time
from pathlib import Path
import numpy as np
from penstock.data import Loader
from penstock.data.consuming.consumer import Consumer

class Large:
    def __init__(self, go):
        self.go = go
    def __len__(self):
        return 48
    def __getitem__(self, index):
        Path(f"{self.go}-{os.getpid()}").touch()
        while not Path(self.go).exists():
            time.sleep(0.01)
        return np.full(1 << 18, index)

consumer = Consumer(token=sys.argv[1], share_memory=False)
print(json.dumps([consumer.name, consumer.address]), flush=True)
sys.stdin.readline()
digest = hashlib.sha256()
for batch in Loader(Large(sys.argv[2]), 8, shuffle=False, consumer=consumer):
    digest.update(batch.tobytes())
print(digest.hexdigest(), flush=True)
"""
"""Batches of 16 MiB, which no socket holds."""


def expected() -> str:
    digest = hashlib.sha256()
    for index in range(48):
        digest.update(np.full(1 << 18, index).tobytes())
    return digest.hexdigest()


@pytest.mark.slow
def test_others_are_served_while_a_program_over_tcp_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST_WAITING", 1)
    command = [sys.executable, "-c", PROGRAM, TOKEN, str(tmp_path / "go")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        with planes.consumer(share_memory=False) as mine:
            name, address = json.loads(other.stdout.readline())
            entries = (
                ConsumerEntry(name=name, address=address),
                ConsumerEntry(name=mine.name, address=mine.address),
            )
            worker = DataWorker(token=TOKEN, consumers=entries)
            thread = threading.Thread(target=worker.run)
            thread.start()
            try:
                eventually(lambda: len(worker.serving()) == 2)
                line: Any = worker.serving()[name]
                other.stdin.write("go\n")
                other.stdin.flush()
                eventually((tmp_path / f"go-{os.getpid()}").exists)
                other.send_signal(signal.SIGSTOP)
                (tmp_path / "go").touch()
                eventually(lambda: line.outbox.behind)
                got = list(Loader(Plain(200), 4, seed=1, consumer=mine))
                while mine.counts.arrived == 0:  # a busy machine: the program made them all
                    got = list(Loader(Plain(200), 4, seed=1, consumer=mine))
                assert worker.serving().get(name) is line, "it was waited for until it was given up"
                assert line.outbox.behind
                other.send_signal(signal.SIGCONT)
                out, _ = other.communicate(timeout=patient(20))
            finally:
                worker.leave()
                thread.join(20)
            assert not thread.is_alive()
    finally:
        end(other)
    assert same(got, list(Loader(Plain(200), 4, seed=1)))
    assert mine.counts.arrived > 0
    assert out.split()[0] == expected()
