"""``penstock profile -- python train.py``: a program that knows nothing of it, and its profile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.data.profiling import launching, record_files
from penstock.data.profiling.commands import whatif
from penstock.data.profiling.launching import Wanted, program_name, run_profiled
from penstock.data.profiling.record_files import RecordFile, read_records
from penstock.data.profiling.record_folder import record_folder
from penstock.data.profiling.report import report
from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.profile import Profile, Storage, loads
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost
from tests import fork_server
from tests.data.planes import eventually
from tests.patience import patient

PROGRAM = """
import hashlib, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

def double(value):
    time.sleep(0.001)
    return value * 2

class Add:
    def __call__(self, value):
        return value + torch.rand(())

class Numbers(Dataset):
    def __init__(self, size):
        self.size, self.transform = size, Compose([double, Add()])
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        time.sleep(0.002)
        with open(__file__) as file:
            file.read()
        return self.transform(torch.full((100,), float(index)))

class Stream(IterableDataset):
    def __iter__(self):
        for index in range(600):
            time.sleep(0.002)
            yield torch.full((100,), float(index))

if __name__ == "__main__":
    kind, options = sys.argv[1], dict(one.split("=") for one in sys.argv[2:])
    workers = int(options.get("workers", 0))
    more = {"persistent_workers": True} if workers and "persistent" in options else {}
    if "context" in options:
        more["multiprocessing_context"] = options["context"]
    torch.manual_seed(3)
    dataset = Stream() if kind == "stream" else Numbers(int(options.get("size", 400)))
    def make():
        return DataLoader(
            dataset, batch_size=8, num_workers=workers, shuffle=kind != "stream", **more
        )
    loader = None if "anew" in options else make()
    digest = hashlib.sha256()
    for epoch in range(int(options.get("epochs", 2))):
        for step, batch in enumerate(make() if loader is None else loader):
            time.sleep(0.004)
            digest.update(batch.numpy().tobytes())
            digest.update(torch.rand(2).numpy().tobytes())
            if "break" in options and step == 20:
                break
            if "raise" in options and epoch == 1:
                raise SystemExit(7)
            if "wait" in options:
                open("began", "w").close()
                while not os.path.exists("go"):
                    time.sleep(0.01)
    print(digest.hexdigest(), flush=True)
"""
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


def run(folder: Path, *arguments: str, options: list[str] | None = None) -> Any:
    return run_program(folder, PROGRAM, *arguments, options=options)


def run_program(
    folder: Path, program: str, *arguments: str, options: list[str] | None = None
) -> Any:
    """Alone, or profiled with these options."""
    script = folder / "train.py"
    script.write_text(program)
    if options is None:
        alone = [str(script), *arguments]
        return fork_server.run(alone, timeout=patient(20), env=environ(), cwd=folder)
    command = [PENSTOCK, "profile", "-o", str(folder / "p.json"), *options, "--"]
    return subprocess.run(
        [*command, sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=patient(20),
        env=environ(),
        cwd=folder,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For temporary files: PyTorch's workers make sockets there, whose names are short."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        yield Path(folder)


def environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}


def profile_in(folder: Path) -> Profile:
    return loads((folder / "p.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["map"],
        ["map", "workers=2"],
        ["map", "workers=2", "persistent=1", "break=1", "epochs=8"],
        ["map", "workers=2", "context=spawn", "epochs=2", "persistent=1"],
        ["stream", "workers=2"],
    ],
)
def test_the_output_is_that_of_the_program_alone_and_a_profile_is_there(
    tmp_path: Path, arguments: list[str]
) -> None:
    # However its workers are started they draw the same; those of a fork cost nothing.
    alone = run(tmp_path, *(one for one in arguments if "context" not in one))
    profiled = run(tmp_path, *arguments, options=[])
    assert profiled.returncode == 0, profiled.stderr
    assert profiled.stdout == alone.stdout
    found = profile_in(tmp_path)
    assert found.batch_size == 8
    assert found.blocked_seconds > 0.0015, "it sleeps 2 ms a sample"
    assert found.step.value > 0.004
    assert "samples/s" in profiled.stderr
    if arguments[0] == "map":
        assert {"double", "Add"} <= {stage.name for stage in found.stages}
        sizes = {stage.name: stage.bytes_out for stage in found.stages}
        assert (sizes["dataset"], sizes["double"], sizes["Add"]) == (400, 400, 400)
        assert "tail local" in profiled.stderr
        assert found.storage is not None
    if len(arguments) > 1:
        assert found.resources.workers == 2
        assert not any("G is that" in note for note in found.notes), found.notes
        assert 0 < found.release_seconds < 0.001, "a batch is small"


@pytest.mark.slow
def test_a_loader_that_is_made_anew_for_each_epoch_is_one_loader(tmp_path: Path) -> None:
    # Of 20 batches of an epoch 10 are in a window that was filled before: three epochs are needed.
    arguments = ["map", "workers=2", "anew=1", "size=160", "epochs=10"]
    alone, profiled = run(tmp_path, *arguments), run(tmp_path, *arguments, options=[])
    assert profiled.returncode == 0, profiled.stderr
    assert profiled.stdout == alone.stdout
    found = profile_in(tmp_path)
    assert not any("other loaders" in note or "G is that" in note for note in found.notes)
    assert found.step.value > 0.004


@pytest.mark.slow
def test_the_program_may_be_ended_when_its_profile_is_there(tmp_path: Path) -> None:
    done = run(tmp_path, "map", "workers=1", "epochs=1000", options=["--stop", "--batches", "10"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert profile_in(tmp_path).rate.samples >= 9


def test_a_program_that_ends_too_early_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "map", "size=16", "epochs=1", options=[])
    assert done.returncode == 1
    assert "the program ended too early" in done.stderr
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(
    ("program", "said", "code"),
    [
        ("print('trained')", "no DataLoader was iterated", 1),
        ("import torch; torch.utils.data.DataLoader([1])", "no DataLoader was iterated", 1),
        ("raise SystemExit(3)", "no DataLoader was iterated", 3),
    ],
)
def test_a_program_without_a_loader_is_named(
    tmp_path: Path, program: str, said: str, code: int
) -> None:
    (tmp_path / "train.py").write_text(program)
    done = subprocess.run(
        [PENSTOCK, "profile", "--", sys.executable, "train.py"],
        capture_output=True,
        text=True,
        timeout=patient(20),
        env=environ(),
        cwd=tmp_path,
    )
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.slow
def test_a_session_that_takes_long_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launching, "PROGRESS_SECONDS", 0.5)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if "0 of at most 60 batches of Numbers" in text:
            (tmp_path / "go").touch()

    command = [sys.executable, "train.py", "map", "workers=2", "size=80", "epochs=1", "wait=1"]
    code = launching.run_profiled(command, launching.Wanted(), lambda _: None, environ(), say)
    assert code == 0
    assert "no DataLoader was iterated yet" in told[0]
    assert told[-1].endswith("the first 10 of each epoch are not: its workers fill their window")


def test_a_command_that_is_none_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [PENSTOCK, "profile", "--", "./no-such-program"],
        capture_output=True,
        text=True,
        timeout=patient(20),
        env=environ(),
        cwd=tmp_path,
    )
    assert done.returncode == 127
    assert "./no-such-program cannot be started: No such file" in done.stderr


@pytest.mark.slow
def test_the_programs_own_exit_code_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, "map", "raise=1", options=[]).returncode == 7


@pytest.mark.slow
def test_that_a_program_failed_is_said_with_what_that_kept_from_being_measured(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "map", "raise=1", "size=16", options=[])
    assert done.returncode == 7
    assert "the program ended with code 7: 0 batches of Numbers were measured" in done.stderr
    assert "num_workers" not in done.stderr, "it has none that could be fewer"


@pytest.mark.slow
def test_sigterm_is_the_programs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "train.py", "map", "epochs=10000", "wait=1"]
    process = subprocess.Popen(
        [PENSTOCK, "profile", "--", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
        cwd=tmp_path,
    )
    try:
        eventually((tmp_path / "began").exists, 40)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=patient(20))
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM


def ask(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(whatif)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def file(tmp_path: Path) -> str:
    from tests.throughput.programs import a_profile

    path = tmp_path / "p.json"
    path.write_text(a_profile().dumps())
    return str(path)


def test_what_more_cores_would_bring(file: str) -> None:
    answer = ask(file, "--cores", "2..8", "--json")
    assert answer.exit_code == 0, answer.output
    points = json.loads(answer.stdout)["points"]
    assert [point["cores"] for point in points] == [2, 3, 4, 5, 6, 7, 8]
    rates = [point["rate"] for point in points]
    assert all(later >= (1 - 1e-9) * earlier for earlier, later in pairwise(rates))
    assert all(point["low"] <= point["rate"] <= point["high"] for point in points)


def test_a_range_of_less_than_one_core_has_its_ends(file: str) -> None:
    answer = ask(file, "--cores", "0.5..1.2", "--json")
    assert answer.exit_code == 0, answer.output
    cores = [point["cores"] for point in json.loads(answer.stdout)["points"]]
    assert (cores[0], cores[-1]) == (0.5, 1.2)


def test_answers_are_a_table_for_people(file: str) -> None:
    answer = ask(file, "--data-workers", "0..3")
    assert answer.exit_code == 0, answer.output
    assert "95 of 100 between" in answer.output
    assert "the least that gives 99 % of the best" in answer.output


def test_no_cut_is_said_to_pay_where_others_hold_up_the_loaders_workers() -> None:
    from tests.throughput.programs import a_profile

    crowded = a_profile(
        others=14.0,
        stages=(StageCost("dataset", "opaque", 0.0005, 0.0, bytes_out=4000),),
        resources=Resources(cores=2, workers=1),
        stalled=0.5,
    )
    told = report(crowded)
    assert "tail local" in told
    assert "which of them pays is not known" in told
    assert "no cut pays" not in told
    assert "is not known" not in report(replace(crowded, others=0.0))


def test_whole_batches_of_a_dataset_are_not_called_samples(tmp_path: Path) -> None:
    from tests.throughput.programs import a_profile

    slow = a_profile(
        batch_size=1, step=Measured(0.2, 0.19, 0.21, 30), rate=Measured(2.345, 2.3, 2.4, 30)
    )
    told = report(slow)
    assert "now         2.35 batches/s [2.3, 2.4]" in told
    assert "a batch " in told
    assert "samples/s" not in told
    path = tmp_path / "p.json"
    path.write_text(slow.dumps())
    answer = ask(str(path), "--cores", "2..4")
    assert "as it was: 2.35 batches/s" in answer.output
    assert "samples/s" not in answer.output


def test_answers_are_in_the_words_of_the_report_and_tell_what_it_noted(tmp_path: Path) -> None:
    from tests.throughput.programs import a_profile

    storage = Storage(1e5, 1e8, 0.5, 1e-3, 1e8)
    path = tmp_path / "p.json"
    path.write_text(a_profile(storage=storage, notes=("other programs had 1 core",)).dumps())
    answer = ask(str(path), "--storage", "1MB/s..500MB/s", "--data-workers", "1")
    assert answer.exit_code == 0, answer.output
    assert "1 MB/s" in answer.output
    assert "500 MB/s" in answer.output
    assert "with 1 data worker, " in answer.output
    assert "note: other programs had 1 core" in answer.output
    assert "accelerator" not in answer.output


def test_a_picture_is_drawn(file: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn with it")
    answer = ask(file, "--cores", "2..8", "--plot", str(tmp_path / "rates.svg"))
    assert answer.exit_code == 0, answer.output
    assert "<svg" in (tmp_path / "rates.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cores", "many"], "--cores many: must be as in 8 or 2..32"),
        (["--cores", "8..2"], "the range ends before it begins"),
        (["--cores", "0"], "--cores 0: must be more than 0"),
        (["--cores", "nan"], "--cores nan: must be 0 or more"),
        (["--cores", "2.."], "--cores 2..: must be as in 8 or 2..32"),
        (["--cores", "..8"], "--cores ..8: must be as in 8 or 2..32"),
        (["--cores", "1e400"], "--cores 1e400: must be at most 100000"),
        (["--workers", "9" * 400], "9...: must be at most 4096"),
        (["--data-workers", "4096", "--data-worker-cores", "8"], "are 32772 makers of batches"),
        (["--workers", "2.5"], "--workers 2.5"),
        (["--workers", "100000"], "at most"),
        (["--storage", "fast"], "the profile does"),
        (["--cache", "1GiB"], "does not know how many bytes"),
        (["--cores", "1..64", "--workers", "1..64", "--data-workers", "0..64"], "combinations"),
        (["--cores", "2", "--cache-policy", "fifo"], "must be minio or lru"),
        (["--plot", "x.png"], "one range over one axis"),
        (["--overlap-copies"], "no copy to a device held the program up"),
    ],
)
def test_questions_that_cannot_be_answered_are_named(
    file: str, arguments: list[str], said: str
) -> None:
    answer = ask(file, *arguments)
    assert answer.exit_code == 2
    assert said in " ".join(answer.output.split())


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    assert "version: None" in ask(str(tmp_path / "p.json")).output
    assert "No such file" in ask(str(tmp_path / "none.json")).output


def profile_command(folder: Path, *arguments: str, **variables: str) -> Any:
    return subprocess.run(
        [PENSTOCK, "profile", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(20),
        env={**environ(), **variables},
        cwd=folder,
    )


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("none/p.json", "there is no folder none"),
        (".", "is a folder: name a file"),
    ],
)
def test_where_no_profile_can_be_written_no_program_is_run_for_it(
    tmp_path: Path, output: str, said: str
) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    done = profile_command(tmp_path, "-o", output, "--", sys.executable, "train.py")
    assert done.returncode == 2
    assert f"--output {output}: {said}" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_script_without_its_interpreter_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    done = profile_command(tmp_path, "--", "./train.py")
    assert done.returncode == 127
    assert "say: penstock profile -- python ./train.py" in done.stderr


def test_without_a_folder_for_temporary_files_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    command = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    with pytest.raises(ProfileError, match="set TMPDIR to one that can be written"):
        run_profiled(command, Wanted(), lambda found: None, os.environ)
    assert not (tmp_path / "ran").exists()


def test_with_nobody_to_tell_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [PENSTOCK, "profile", "--", sys.executable, "-c", "raise SystemExit(5)"]
    with os.fdopen(writer) as broken:
        ended = subprocess.run(
            command, stderr=broken, timeout=patient(20), env=environ(), cwd=tmp_path, check=False
        )
    assert ended.returncode == 5


def test_a_profile_of_an_earlier_run_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "penstock-profile.json").write_text("{}")
    done = profile_command(tmp_path, "--", sys.executable, "train.py")
    assert done.returncode == 1
    assert "penstock-profile.json is of an earlier run" in done.stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "a/train.py", "--config", "b.py"], "train.py"),
        (["python", "-m", "pkg.train", "--lr", "1"], "pkg.train"),
        (["python", "-m", "torch.distributed.run", "train.py"], "train.py"),
        (["/bin/bash", "train.sh"], "bash"),
    ],
)
def test_a_program_is_called_as_people_call_it(command: list[str], name: str) -> None:
    assert program_name(command) == name


def test_a_profile_that_is_cut_is_named(tmp_path: Path) -> None:
    from tests.throughput.programs import a_profile

    (tmp_path / "p.json").write_text(a_profile().dumps()[:200])
    answer = ask(str(tmp_path / "p.json"))
    assert answer.exit_code == 2
    assert "make it again with penstock profile" in " ".join(answer.output.split())


def test_more_cores_than_workers_can_be_simulated_for_are_named(file: str) -> None:
    answer = ask(file, "--cores", "5000")
    assert answer.exit_code == 2
    assert "--cores 5000: as many workers go with them" in " ".join(answer.output.split())


def test_a_program_goes_on_when_its_profiler_is_killed_and_nothing_stays(
    tmp_path: Path, short_folder: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    variables = {**environ(), "TMPDIR": str(short_folder)}
    program = ["train.py", "map", "workers=1", "epochs=2", "size=80"]
    with subprocess.Popen(
        [PENSTOCK, "profile", "--", sys.executable, *program, "wait=1"],
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        cwd=tmp_path,
    ) as process:
        try:
            eventually((tmp_path / "began").exists, 40)
        finally:
            process.kill()
        (tmp_path / "go").touch()
        # The program has the pipe too: until it has ended.
        output, _ = process.communicate(timeout=patient(20))
    alone = fork_server.run(program, timeout=patient(20), env=environ(), cwd=tmp_path)
    assert output == alone.stdout
    assert len(list(short_folder.glob("penstock-profile-*"))) == 1
    profile_command(tmp_path, "--", sys.executable, "-c", "1", TMPDIR=str(short_folder))
    assert not list(short_folder.glob("penstock-profile-*"))


def test_a_folder_of_a_session_that_lives_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "penstock-profile-mine").mkdir()
    with record_folder() as first, record_folder() as second:
        assert first.is_dir()
        assert second.is_dir()
        assert first != second
    assert {path.name for path in tmp_path.iterdir()} == {"penstock-profile-mine"}


def test_what_is_written_down_has_a_bound_however_many_processes_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "MOST_IN_ALL", 1000)
    for process in range(50):
        record = RecordFile(tmp_path, process)
        record.write({"k": "made", "paths": "x" * 80})
        record.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert 5 < len(list(read_records(tmp_path))) < 12


def test_a_program_whose_records_cannot_be_written_runs(tmp_path: Path) -> None:
    record = RecordFile(tmp_path / "gone", 1)
    record.write({"k": "made"})
    record.close()
    assert not list(read_records(tmp_path / "gone"))
