"""``penstock run --cache``: unmodified programs, their loader workers and their data workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.data.cache.launching import serves
from tests import fork_server
from tests.data.cache.daemons import daemon, files, place, until
from tests.patience import patient

RUN = [sys.executable, "-c", "import sys; from penstock.cli.main import main; sys.exit(main())"]

PROGRAM = textwrap.dedent("""
    import hashlib, json, os, sys
    from pathlib import Path

    import torch
    from torch.utils.data import DataLoader, Dataset

    class Files(Dataset):
        def __init__(self, folder):
            self.files = sorted(Path(folder).iterdir())
        def __len__(self):
            return len(self.files)
        def __getitem__(self, index):
            return torch.tensor(list(self.files[index].read_bytes()))

    if __name__ == "__main__":
        loader = DataLoader(Files(sys.argv[1]), batch_size=4, num_workers=int(sys.argv[2]))
        digest = hashlib.sha256()
        for epoch in range(int(sys.argv[3])):
            for batch in loader:
                digest.update(batch.numpy().tobytes())
        from penstock.data.cache import messages
        from penstock.data.cache.client import CacheClient
        if place := os.environ.get("PENSTOCK_CACHE_SOCKET"):
            report = CacheClient(place).command(messages.STAT)
        else:
            report = None
        print(json.dumps([digest.hexdigest(), report]))
""")


def run(tmp_path: Path, options: list[str], *arguments: str, **environ: str) -> tuple[str, dict]:
    """The program's digest and the cache's report; without options it runs alone."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    own = {**os.environ, "OMP_NUM_THREADS": "1", **environ}
    if options:
        done = subprocess.run(
            [*RUN, "run", *options, "--", sys.executable, str(program), *arguments],
            capture_output=True,
            text=True,
            timeout=patient(60),
            env=own,
        )
    else:
        done = fork_server.run([str(program), *arguments], timeout=patient(60), env=own)
    assert done.returncode == 0, done.stderr
    digest, report = json.loads(done.stdout.splitlines()[-1])
    return digest, report


@pytest.mark.slow
@pytest.mark.parametrize("workers", [["--data-workers", "1"], []])
def test_a_program_reads_through_a_cache_of_its_own(tmp_path: Path, workers: list[str]) -> None:
    folder = tmp_path / "data"
    files(folder, 40)
    alone, nothing = run(tmp_path, [], str(folder), "0", "1")
    assert nothing is None
    cached, report = run(
        tmp_path,
        [*workers, "--cache", "1MiB", "--cache-path", str(folder)],
        *(str(folder), "2", "1"),
    )
    assert cached == alone
    assert report[str(folder)]["misses"] == 40
    assert report[str(folder)]["held_bytes"] == 40_000


@pytest.mark.slow
def test_the_cache_of_the_node_is_used_where_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    tmp_path.chmod(0o755)
    files(folder, 20)
    with daemon(place(), folder) as node:
        digests = set()
        for _ in range(2):
            options = ["--cache", "1MiB", "--cache-path", str(folder)]
            digest, report = run(
                tmp_path, options, str(folder), "0", "3", PENSTOCK_CACHE_SOCKET=node.place
            )
            digests.add(digest)
            assert report[str(folder)]["misses"] == 20, "of the first program alone"
        assert len(digests) == 1
        node.wait_for(folder, hits=100)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cache", "1MiB"], "--cache-path"),
        (["--cache-path", "/data"], "--cache"),
        (["--cache", "much", "--cache-path", "/data"], "much"),
        (["--cache", "0", "--cache-path", "/data"], "above 0"),
        (["--trainer", "127.0.0.1:1", "--cache", "1", "--cache-path", "/data"], "input.cache"),
    ],
)
def test_options_that_cannot_be_are_refused(options: list[str], said: str) -> None:
    done = subprocess.run(
        [*RUN, "run", *options, "--", "true"],
        capture_output=True,
        text=True,
        timeout=patient(30),
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.slow
def test_nothing_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os; print(os.environ['PENSTOCK_CACHE_SOCKET'], flush=True); input()")
    running = subprocess.Popen(
        [
            *(*RUN, "run", "--cache", "1MiB", "--cache-path", str(tmp_path), "--"),
            *(sys.executable, str(program)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdin is not None
    where = running.stdout.readline().strip()
    assert serves(where, [str(tmp_path)])
    running.kill()
    running.wait()
    until(lambda: not serves(where, [str(tmp_path)]))
    running.stdin.close()
    running.stdout.close()


def begun(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, "run", *options, "--", sys.executable, "-c", "print('ran')"],
        capture_output=True,
        text=True,
        timeout=patient(60),
        env={**os.environ, "COLUMNS": "200"},
    )


def test_a_folder_that_is_not_there_and_too_much_memory_are_told(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    done = begun("--cache", "4000TiB", "--cache-path", str(missing))
    assert done.returncode == 0
    assert f"--cache-path: {missing}: there is no such folder yet" in done.stderr
    assert "are more than the memory here" in done.stderr
    assert "no such folder" not in begun("--cache", "1MiB", "--cache-path", str(tmp_path)).stderr


@pytest.mark.parametrize("option", [["--share-order", "common"], ["--share-window", "1Gi"]])
def test_options_of_sharing_need_a_group(option: list[str]) -> None:
    done = begun(*option)
    assert done.returncode == 2
    assert "go with --share" in done.stderr
