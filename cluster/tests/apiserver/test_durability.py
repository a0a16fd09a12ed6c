"""kill -9 of the server: what was answered as written is there when it comes back."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from pathlib import Path

from cluster.tests.registry.samples import config_map
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import api_server

PROGRAM = """
import sys, threading
from pathlib import Path
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import api_server

with api_server(EngineOptions(database=Path(sys.argv[1]))) as cluster:
    print(cluster.url, cluster.token, flush=True)
    threading.Event().wait(120)
"""
WRITERS = 4
PATH = "/api/v1/namespaces/default/configmaps"


def test_what_was_answered_outlives_the_server(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    for life in range(5):
        made, deleted = write_until_killed(database, life)
        with api_server(EngineOptions(database=database)) as cluster:
            names = {one["metadata"]["name"] for one in cluster.list("configmaps", "default")}
        assert len(made) > 20
        assert made <= names
        assert not deleted & names


def write_until_killed(database: Path, life: int) -> tuple[set[str], set[str]]:
    """Names of what was made, and of what was made and deleted, before the server was killed."""
    made: set[str] = set()
    deleted: set[str] = set()
    enough = threading.Event()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM, database], stdout=pipe) as server:
        assert server.stdout is not None
        url, token = server.stdout.readline().decode().split()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def write(writer: int) -> None:
            line = http.client.HTTPConnection(url.partition("//")[2], timeout=20)

            def ask(verb: str, path: str, body: str | None = None) -> int:
                line.request(verb, path, body, headers)
                answer = line.getresponse()
                answer.read()
                return answer.status

            number = 0
            try:
                while True:
                    name = f"of-{life}-{writer}-{number}"
                    assert ask("POST", PATH, json.dumps(config_map(name))) == 201
                    if number % 3:
                        made.add(name)
                    else:  # while it is being deleted, it may be there or not
                        assert ask("DELETE", f"{PATH}/{name}") == 200
                        deleted.add(name)
                    number += 1
                    if len(made) > 50 + 20 * life:
                        enough.set()
            except (OSError, http.client.HTTPException):
                return  # it was killed

        writers = [threading.Thread(target=write, args=(one,)) for one in range(WRITERS)]
        for one in writers:
            one.start()
        assert enough.wait(60)
        server.kill()
        for one in writers:
            one.join(60)
    return made, deleted
