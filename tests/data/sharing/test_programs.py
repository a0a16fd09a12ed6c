"""``penstock run --share``: unmodified programs of one machine, as processes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.data.planes import eventually
from tests.patience import patient

SCRIPT = textwrap.dedent(
    """
    import argparse, json, os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset):
        def __init__(self, size, bad):
            self.size, self.bad = size, bad
        def __len__(self):
            return self.size
        def __getitem__(self, index):
            time.sleep(0.002)
            if index == self.bad:
                raise ValueError("no such picture")
            picture = torch.rand(4) + index
            return {"picture": picture * float(os.environ.get("SECRET", "1")), "index": index}

    def collate(samples):
        indices = [sample.pop("index") for sample in samples]  # as some collators do
        for sample in samples:
            sample["picture"].add_(0.5)
        return torch.stack([sample["picture"] for sample in samples]), torch.tensor(indices)

    asked = argparse.ArgumentParser()
    asked.add_argument("--size", type=int, default=203)
    asked.add_argument("--batch", type=int, default=16)
    asked.add_argument("--epochs", type=int, default=2)
    asked.add_argument("--step", type=float, default=0.01)
    asked.add_argument("--workers", type=int, default=0)
    asked.add_argument("--bad", type=int, default=-1)
    asked.add_argument("--drop-last", action="store_true")
    asked.add_argument("--wait-for", help="a file, after it has said that it trains")
    asked = asked.parse_args()
    loader = DataLoader(Pictures(asked.size, asked.bad), asked.batch, shuffle=True,
                        num_workers=asked.workers, collate_fn=collate, drop_last=asked.drop_last)
    torch.manual_seed(os.getpid())
    epochs, digests = [], []
    for epoch in range(asked.epochs):
        seen, pictures = [], {}
        for batch, indices in loader:
            seen.append(indices.tolist())
            for picture, index in zip(batch, indices.tolist()):
                pictures[index] = picture.tolist()
                drawn = (float(picture[0]) - 0.5) / float(os.environ.get("SECRET", "1")) - index
                assert -0.001 < drawn < 1.001
            if epoch == 0 and len(seen) == 3:
                print("training", flush=True)
                while asked.wait_for and not os.path.exists(asked.wait_for):
                    time.sleep(0.01)
            time.sleep(asked.step)
        epochs.append(seen)
        digests.append(pictures)
    again = sum(digests[0].get(index) == one for index, one in digests[-1].items())
    assert len(digests) == 1 or not again, "the same random numbers in another epoch"
    print(json.dumps({"epochs": epochs, "steps": len(loader)}), flush=True)
    """
)


class Group:
    """Programs of one group."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "penstock" / "share" / "search"
        self.script = folder / "train.py"
        self.script.write_text(SCRIPT)
        self._environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, *arguments: str, options: tuple[str, ...] = (), workers: int = 2, **environ: str
    ) -> subprocess.Popen[str]:
        """One more."""
        command = [sys.executable, "-c", "import sys; from penstock.cli.main import main; main()"]
        command += ["run", "--share", "search", "--data-workers", str(workers), *options, "--"]
        process = subprocess.Popen(
            [*command, sys.executable, str(self.script), *arguments],
            env={**self._environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def summary(self, *, at_once: bool = True) -> dict[str, Any]:
        """What the group has come to, when it has ended; ``at_once``: it is told to end now."""
        keeper = self.keeper()
        if keeper is not None and at_once:
            keeper.terminate()
        eventually(lambda: keeper is None or not keeper.is_running(), 60)
        found: dict[str, Any] = json.loads((self.folder / "last.json").read_text())
        return found

    def data_workers(self) -> list[psutil.Process]:
        """Those that it keeps, as it has written down."""
        state = json.loads((self.folder / "keeper.json").read_text())
        return sorted(
            (psutil.Process(pid) for pid, _ in state["data_workers"]), key=lambda one: one.pid
        )

    def keeper(self) -> psutil.Process | None:
        """The process that they have in common."""
        for process in psutil.process_iter(["cmdline"]):
            if str(self.folder) in (process.info["cmdline"] or []):
                return process
        return None


def trains(process: subprocess.Popen[str]) -> None:
    """Wait until a program trains. It has to wait for a file then: what else it said is lost."""
    assert process.stdout is not None
    assert process.stdout.readline() == "training\n"


def result(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """What a program has seen, and what was said beside."""
    out, errors = process.communicate(timeout=patient(30))
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1]), errors


def exact(seen: dict[str, Any], size: int = 203, batch: int = 16) -> None:
    """Each sample once in each epoch, in batches as alone."""
    for epoch in seen["epochs"]:
        assert sorted(itertools.chain(*epoch)) == list(range(size))
        assert {len(one) for one in epoch[:-1]} == {batch}
        assert len(epoch) == seen["steps"] == -(-size // batch)


@pytest.fixture
def group() -> Iterator[Group]:
    folder = Path(tempfile.mkdtemp(prefix="share-"))  # short, as names of sockets have to be
    made = Group(folder)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()
    if (keeper := made.keeper()) is not None:
        keeper.terminate()
        eventually(lambda: not keeper.is_running(), 30)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_programs_of_other_batch_sizes_share_in_free_order(group: Group) -> None:
    programs = [group.start("--batch", str(8 * (1 + number))) for number in range(3)]
    for number, program in enumerate(programs):
        seen, _ = result(program)
        exact(seen, batch=8 * (1 + number))
        assert seen["epochs"][0] != seen["epochs"][1]
    total = group.summary(at_once=False)
    assert total["taken"] == 3 * 2 * 26
    assert total["made"] < 0.7 * total["taken"]
    assert total["members"] == 3
    assert group.keeper() is None
    assert sorted(one.name for one in group.folder.iterdir()) == [
        "alive.lock",
        "keeper.log",
        "last.json",
        "starting.lock",
    ]


@pytest.mark.slow
def test_all_batches_of_a_common_order_are_the_same(group: Group) -> None:
    options = ("--share-order", "common")
    go = group.script.with_name("go")  # they run at the same time, whenever each has loaded
    arguments = ("--workers", "1", "--wait-for", str(go))
    programs = [group.start(*arguments, options=options) for _ in range(2)]
    for program in programs:
        trains(program)
    go.touch()
    seen = [result(program)[0] for program in programs]
    for one in seen:
        exact(one)
    for one, other in zip(seen[0]["epochs"], seen[1]["epochs"], strict=True):
        assert {tuple(batch) for batch in one} == {tuple(batch) for batch in other}
    total = group.summary()
    assert total["made"] < total["taken"]


@pytest.mark.slow
def test_nobodys_end_is_anybody_elses(group: Group) -> None:
    hold = ("--wait-for", str(group.script.with_name("go")))
    survivor = group.start(*hold, "--size", "403")
    killed, stopped = group.start(*hold), group.start(*hold)
    for process in (survivor, killed, stopped):
        trains(process)
    killed.kill()
    for child in psutil.Process(stopped.pid).children(recursive=True):
        child.send_signal(signal.SIGSTOP)
    group.script.with_name("go").touch()
    seen, errors = result(survivor)
    exact(seen, 403)
    assert "goes on without" not in errors
    for child in psutil.Process(stopped.pid).children(recursive=True):
        child.send_signal(signal.SIGCONT)
    exact(result(stopped)[0])


@pytest.mark.slow
def test_a_group_whose_keeper_is_killed_shares_on_with_what_it_holds(group: Group) -> None:
    go = group.script.with_name("go")
    programs = [group.start("--epochs", "3", "--wait-for", str(go)) for _ in range(2)]
    for program in programs:
        trains(program)
    keeper, workers = group.keeper(), group.data_workers()
    assert keeper is not None
    assert len(workers) == 2
    keeper.kill()
    eventually(lambda: group.keeper() not in (None, keeper), 30)
    eventually(lambda: group.data_workers() == workers, 30)
    go.touch()
    for program in programs:
        seen, errors = result(program)
        exact(seen)
        assert "another is started" in errors
        assert "another address" not in errors
        assert "data worker" not in errors.replace("the group's data workers", ""), "none was lost"
    assert group.data_workers() == workers
    total = group.summary()
    assert total["taken"] == 2 * 3 * 26
    assert total["made"] < 0.7 * total["taken"]
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
def test_data_workers_that_nobody_keeps_and_nobody_needs_end(group: Group) -> None:
    program = group.start("--wait-for", str(group.script.with_name("go")))
    trains(program)
    keeper, workers = group.keeper(), group.data_workers()
    assert keeper is not None
    program.kill()
    keeper.kill()
    eventually(lambda: not any(worker.is_running() for worker in workers), 60)


@pytest.mark.slow
def test_a_program_that_differs_secretly_is_told_and_does_not_share(group: Group) -> None:
    go = group.script.with_name("go")
    honest = group.start("--wait-for", str(go))
    trains(honest)
    seen, errors = result(group.start(SECRET="2"))
    go.touch()
    exact(seen)
    assert "does not share with group search, and is served by no data worker: what" in errors
    assert "batch[0] is another there" in errors
    exact(result(honest)[0])


@pytest.mark.slow
def test_a_sample_that_raises_is_the_programs_own_matter(group: Group) -> None:
    raising = group.start("--bad", "77")
    leaving_out = group.start("--bad", "77", options=("--share-order", "free"))
    for program in (raising, leaving_out):
        _, errors = program.communicate(timeout=patient(30))
        assert program.returncode == 1
        assert "ValueError: no such picture" in errors


def test_members_of_one_group_have_to_agree(group: Group) -> None:
    first = group.start("--step", "0.05")
    eventually((group.folder / "keeper.json").exists, 30)
    other = group.start(options=("--share-order", "common"))
    _, errors = other.communicate(timeout=patient(10))
    assert other.returncode == 2
    assert "--share: share: " in errors.replace("\n", " ").replace("│", "")
    first.kill()


@pytest.mark.parametrize("name", ["", "Search", "a/b", "x" * 41, "-a"])
def test_names_that_are_none_are_refused(group: Group, name: str) -> None:
    command = [sys.executable, "-c", "import sys; from penstock.cli.main import main; main()"]
    done = subprocess.run(
        [*command, "run", "--share", name, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--share" in done.stderr


def test_a_folder_that_others_may_read_is_refused(group: Group) -> None:
    group.folder.parents[2].chmod(0o755)
    _, errors = group.start().communicate(timeout=patient(10))
    assert "nobody else may read" in " ".join(errors.replace("│", "").split())


def test_a_folder_whose_name_is_too_long_is_refused(group: Group, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir(mode=0o700)
    _, errors = group.start(XDG_RUNTIME_DIR=str(long)).communicate(timeout=patient(10))
    assert "a socket's name has at most 107 bytes" in " ".join(errors.replace("│", "").split())


@pytest.mark.slow
def test_whoever_nearly_shares_is_told_what_differs(group: Group) -> None:
    go = group.script.with_name("go")
    first = group.start("--wait-for", str(go))
    trains(first)
    seen, errors = result(group.start("--bad", "5000"))
    go.touch()
    exact(seen)
    assert "a loader is shared with nobody yet: another program of the group has a" in errors
    assert "with another dataset.bad, and only what is the same is shared" in errors
    seen, errors = result(first)
    assert "nobody yet" not in errors


MODULE: str = textwrap.dedent(
    """
    import torch
    from torch.utils.data import Dataset

    SHIFTED = ()

    class Numbers(Dataset):
        def __init__(self, size=200):
            self.size = size
        def __len__(self):
            return self.size
        def __getitem__(self, index):
            with open("numbers/shift") as file:
                shift = float(file.read().split()[index])
            return torch.tensor([index, index + shift + (0.5 if index in SHIFTED else 0)])
    """
)
IMPORTING = textwrap.dedent(
    """
    import json, os, sys, time
    from torch.utils.data import DataLoader
    from numbers_of_a_test import Numbers

    shuffled = DataLoader(Numbers(), 16, shuffle=True)
    evaluated = DataLoader(Numbers(), 16)
    epochs = []
    for epoch in range(2):
        epochs.append([pair for batch in shuffled for pair in batch.tolist()])
        epochs.append([pair for batch in evaluated for pair in batch.tolist()])
        if epoch == 0:
            print("training", flush=True)
            while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
    print(json.dumps(epochs), flush=True)
    """
)


def _folder(where: Path, shifted: tuple[int, ...] = (), other: tuple[int, ...] = ()) -> Path:
    """One with a program, its module and its files; a few of its samples may be others."""
    (where / "numbers").mkdir(parents=True, exist_ok=True)
    shifts = " ".join("0.25" if index in other else "0" for index in range(200))
    (where / "numbers" / "shift").write_text(shifts)
    (where / "numbers_of_a_test.py").write_text(MODULE.replace("= ()", f"= {shifted}"))
    (where / "train.py").write_text(IMPORTING)
    return where


@pytest.mark.slow
@pytest.mark.parametrize("what", ["code", "folder"])
def test_a_few_samples_that_are_others_are_nobody_elses(
    group: Group, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    go = group.script.with_name("go")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    group._environ["PYTHONDONTWRITEBYTECODE"] = "1"
    one = _folder(group.script.parent)
    group.script = one / "train.py"
    monkeypatch.chdir(one)
    first = group.start(str(go))
    trains(first)
    few = (3, 77, 190)
    if what == "code":  # edited, while the first one trains
        _folder(one, shifted=few)
    else:
        second = _folder(one / "other", other=few)
        monkeypatch.chdir(second)
        group.script = second / "train.py"
    later = group.start()
    seen, errors = result(later)
    go.touch()
    added = 0.5 if what == "code" else 0.25
    for epoch in seen:
        assert sorted(epoch) == [[index, index + added * (index in few)] for index in range(200)]
    assert "cannot open the pipeline and is not used" in errors
    assert ("is another here" if what == "code" else "names files from the folder") in errors
    kept, errors = result(first)
    for epoch in kept:
        assert sorted(epoch) == [[index, index] for index in range(200)]
    assert "not used" not in errors
