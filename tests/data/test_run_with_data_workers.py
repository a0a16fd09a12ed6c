"""``penstock run --data-workers N -- python train.py``: a program that knows nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import fork_server
from tests.data.planes import SCRIPT, eventually


def run(
    folder: Path, workers: int, *arguments: str, slow: float = 0.0, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    penstock = str(Path(sys.executable).with_name("penstock"))
    command = [penstock, "run", "--data-workers", str(workers), *options, "--"]
    command += [sys.executable, str(script), *arguments]
    environ = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}
    environ["SLOW"] = str(slow)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=55, env=environ, cwd=folder
    )


@pytest.mark.slow
def test_a_plain_script_gets_the_same_batches_with_any_number_of_data_workers(
    tmp_path: Path,
) -> None:
    none, two = run(tmp_path, 0), run(tmp_path, 2, slow=0.05)
    assert none.returncode == two.returncode == 0, two.stderr
    assert none.stdout == two.stdout
    assert "leaves after" in two.stderr
    assert "leaves after 0 batches" not in two.stderr


@pytest.mark.slow
def test_the_programs_error_is_its_own_and_nothing_is_left_behind(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.process_iter()}
    done = run(tmp_path, 1, "bad")
    assert done.returncode == 1
    assert "RuntimeError: no such picture" in done.stderr
    assert "Penstock: sample 77 of" in done.stderr
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.pid not in before and process.info["cwd"] == str(tmp_path)
    ]
    assert left == []


INTERRUPTED = """
import pathlib, torch
loader = torch.utils.data.DataLoader(range(100_000), 4, num_workers=1)
try:
    for epoch in range(1000):
        for batch in loader:
            pathlib.Path("step").write_text("x")
except KeyboardInterrupt:
    print("the model is saved", flush=True)
    raise SystemExit(5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_reaches_the_program_alone_which_ends_in_its_own_way(
    tmp_path: Path, workers: int
) -> None:
    (tmp_path / "train.py").write_text(INTERRUPTED)
    penstock = str(Path(sys.executable).with_name("penstock"))
    process = subprocess.Popen(
        [penstock, "run", "--data-workers", str(workers), "--", sys.executable, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        eventually((tmp_path / "step").exists, 30)
        os.killpg(process.pid, signal.SIGINT)  # a terminal tells all that it has in front
        output, errors = process.communicate(timeout=40)
    finally:
        process.kill()
    assert output == "the model is saved\n", errors
    assert process.returncode == 5
    assert "Traceback" not in errors


def test_a_number_of_data_workers_that_cannot_be_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, -1)
    assert done.returncode == 2
    assert "must be from 0 to" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_may_be_left_out_and_is_named(tmp_path: Path, workers: int) -> None:
    done = run(tmp_path, workers, "bad", options=("--skip-bad",))
    assert done.returncode == 0, done.stderr
    left_out = [line for line in done.stderr.splitlines() if "sample 77 is left out" in line]
    assert len(left_out) == 2, "once in each of two epochs"
    assert "RuntimeError: no such picture" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data-workers", "1", "--guarantee", "Perhaps"), "must be one of"),
        (("--skip-bad",), "input.skipBad"),
        (("--guarantee", "AtMostOnce"), "input.guarantee"),
    ],
)
def test_options_that_cannot_be_carried_out_are_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    penstock = str(Path(sys.executable).with_name("penstock"))
    done = subprocess.run(
        [penstock, "run", *options, "--", "true"],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", "").split())


STATEFUL = """
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return index

if __name__ == "__main__":
    loader = StatefulDataLoader(Numbers(), 4, num_workers=2)
    for step, batch in enumerate(loader):
        if step == 2:
            state = loader.state_dict()
            break
    again = StatefulDataLoader(Numbers(), 4, num_workers=2)
    again.load_state_dict(state)
    for _ in range(2):
        print([batch.tolist() for batch in again])
"""


@pytest.mark.slow
def test_torchdatas_loader_stays_its_own_and_one_line_says_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STATEFUL)
    penstock = [str(Path(sys.executable).with_name("penstock")), "run", "--data-workers", "1", "--"]
    command = [*penstock, sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
    assert done.stdout == fork_server.run([str(script)], timeout=55).stdout
    assert done.stdout.startswith("[[12, 13, 14, 15], ")
    said = [line for line in done.stderr.splitlines() if "stays as PyTorch has it" in line]
    assert len(said) == 1
    assert "a StatefulDataLoader of Numbers" in said[0]
