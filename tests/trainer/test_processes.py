"""What an agent makes of the statements that reach its socket: authentic, bounded, prompt."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.data.hooked import hooked
from penstock.job.work_source import Part
from penstock.trainer import processes as room
from penstock.trainer import training_evidence
from penstock.trainer.processes import Processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


@pytest.fixture
def heard() -> Iterator[Processes]:
    listening = Processes()
    yield listening
    listening.close()


def say(heard: Processes, body: bytes | dict[str, object]) -> None:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text, f"\0{heard.name}")


def listen(heard: Processes) -> None:
    heard.receive({os.getpid()})


STEP = {"trains": True, "rank": 1, "world_size": 4}


def test_a_step_is_of_the_process_that_says_it(heard: Processes) -> None:
    say(heard, {**STEP, "pid": 1})
    listen(heard)
    (process,) = heard.read()
    assert (process.pid, process.rank, process.world_size) == (os.getpid(), 1, 4)
    assert process.seconds == 0
    assert process.part is Part.OWN


def test_time_begins_anew_when_the_rank_is_another(
    heard: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: clock[0])
    alone = {"trains": True, "rank": 0, "world_size": 1}
    for clock[0], said, seconds in [
        (100.0, alone, 0.0),
        (112.0, alone, 12.0),
        (115.0, {**STEP, "trains": False}, None),
        (118.0, STEP, 0.0),
        (125.0, alone, 0.0),
    ]:
        say(heard, said)
        listen(heard)
        assert heard.read()[0].seconds == seconds
    clock[0] = 130.0
    (process,) = heard.read()
    assert process.idle == 5.0
    assert (process.world_size, process.widest, process.widest_rank) == (1, 4, 1)


def test_strangers_are_not_heard(heard: Processes) -> None:
    say(heard, STEP)
    heard.receive(set())
    assert heard.read() == ()


def test_a_process_that_has_ended_is_told_only_at_the_end(heard: Processes) -> None:
    code = (
        "import json, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"s.sendto(json.dumps({STEP!r}).encode(), '\\0' + sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, heard.name], check=True, timeout=30)
    heard.receive()
    heard.note_ended()
    assert heard.read() == ()
    assert [process.rank for process in heard.read(gone_too=True)] == [1]


def test_to_read_the_list_changes_nothing(
    heard: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(heard, STEP)
    listen(heard)
    monkeypatch.setattr(room, "_lives", lambda pid: False)
    before = copy.deepcopy(heard._known)
    heard.read()
    heard.read(gone_too=True)
    assert heard._known == before
    heard.note_ended()
    assert heard.read() == ()


def test_a_grandchild_is_heard_and_one_who_is_not_below_this_process_is_not(
    heard: Processes,
) -> None:
    code = (
        "import json, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"s.sendto(json.dumps({STEP!r}).encode(), '\\0' + sys.argv[1])\n"
        "print('said', flush=True)\n"
        "sys.stdin.read()"
    )
    below = [sys.executable, "-c", code, heard.name]
    between = f"import subprocess; subprocess.run({below!r})"
    with subprocess.Popen(
        [sys.executable, "-c", between], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"said\n"
        heard.receive()
        (process,) = heard.read() or ()
        assert process.pid not in (child.pid, os.getpid())
        child.communicate(timeout=30)
    say(heard, STEP)  # this process itself is its own agent here, and none of its programs
    heard.receive()
    assert os.getpid() not in {each.pid for each in heard.read(gone_too=True) or ()}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b'{"part": "other"}',
        b"9" * 5000,
        b'{"trains": true, "rank": 4, "world_size": 4}',
        b'{"trains": true, "rank": -1, "world_size": 4}',
        b'{"trains": true, "rank": "x", "world_size": 4}',
        b'{"trains": true, "rank": 0, "world_size": 1e999}',
    ],
)
def test_what_is_no_statement_is_passed_over(heard: Processes, body: bytes) -> None:
    say(heard, body)
    say(heard, STEP)
    listen(heard)
    (process,) = heard.read()
    assert process.rank == 1


def test_two_live_sessions_are_noticed_and_one_after_another_is_not(heard: Processes) -> None:
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.sendto(b'{\"part\": \"session\"}', '\\0' + sys.argv[1])\n"
        "print('said', flush=True)\n"
        "sys.stdin.read()"
    )

    def begin() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, heard.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"said\n"
        heard.receive()
        return process

    first = begin()
    first.communicate(timeout=30)
    second = begin()
    assert heard.duplicates == ()
    third = begin()
    assert heard.duplicates == (second.pid, third.pid)
    for process in (second, third):
        process.communicate(timeout=30)


WATCHED = """
import importlib.util
assert importlib.util.find_spec("torch")  # as libraries look for it before they import it
import torch
model = torch.nn.Linear(2, 1)
model(torch.ones(1, 2)).sum().backward()
"""


def test_a_program_that_looks_for_pytorch_before_it_imports_it_is_heard(heard: Processes) -> None:
    environ = hooked({**os.environ, training_evidence.SOCKET: heard.name})
    subprocess.run([sys.executable, "-c", WATCHED], check=True, env=environ, timeout=55)
    heard.receive()
    (process,) = heard.read(gone_too=True)
    assert (process.rank, process.world_size, process.seconds) == (0, 1, 0)


def test_an_interpreter_without_penstock_runs_as_ever(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("")
    environ = hooked({"PYTHONPATH": str(tmp_path), training_evidence.SOCKET: "nobody"})
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sitecustomize, torch; print('ran')"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=30,
        check=False,
    )
    assert done.stdout == "ran\n"
    assert "PENSTOCK_AGENT_SOCKET has no effect here" in done.stderr
