"""``kubectl logs`` in all its forms, in process and over HTTP."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.tests.kubelet.clusters import Cluster, container, pod, run
from penstock_cluster.kubelet.container.logs import read_log
from penstock_cluster.kubelet.shim.logfile import LogFile
from penstock_cluster.registry import ApiError, LogQuery

COUNT = "for i in 1 2 3 4 5; do echo line $i; done"


def test_the_whole_log_its_end_and_its_beginning(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script=COUNT))
        await cluster.ended("p")
        assert await cluster.log("p") == "".join(f"line {i}\n" for i in range(1, 6))
        assert await cluster.log("p", tail_lines=2) == "line 4\nline 5\n"
        assert await cluster.log("p", tail_lines=0) == ""
        assert await cluster.log("p", limit_bytes=8) == "line 1\nl"
        assert await cluster.log("p", since_seconds=3600) == await cluster.log("p")
        assert await cluster.log("p", since_time="2999-01-01T00:00:00Z") == ""
        stamped = (await cluster.log("p", timestamps=True)).splitlines()
        assert all(line.split(" ", 1)[0].endswith("Z") for line in stamped)
        assert stamped[0].endswith(" line 1")

    run(scenario, tmp_path)


def test_both_streams_and_lines_without_an_end(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="echo out; echo err >&2; printf rest"))
        await cluster.ended("p")
        assert sorted((await cluster.log("p")).replace("rest", "rest\n").split()) == [
            "err",
            "out",
            "rest",
        ]

    run(scenario, tmp_path)


def test_a_long_line_comes_back_whole(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"))
        await cluster.ended("p")
        first, second = (await cluster.log("p")).split()
        assert (len(first), second) == (100_000, "end")

    run(scenario, tmp_path)


BYTES = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\r", b"\n", b"\r\n", b"\x85", b"x" * 40_000])
)


@given(chunks=BYTES, follow=st.booleans(), max_bytes=st.sampled_from([10 << 20, 100_000]))
@example(chunks=[b"\r 10%\r 50%\r100%\nend\n"], follow=False, max_bytes=10 << 20)
def test_any_bytes_come_back_whole(chunks: list[bytes], follow: bool, max_bytes: int) -> None:
    """Progress bars write carriage returns, and broken programs anything."""
    chunks = chunks if sum(map(len, chunks)) < max_bytes else []

    async def read(folder: Path) -> bytes:
        query = LogQuery("main", follow=follow)
        document = {"metadata": {"name": "p"}}
        pieces = read_log(folder, document, query, datetime.now(UTC), lambda _: False)
        return b"".join([piece async for piece in pieces])

    with tempfile.TemporaryDirectory() as folder:
        file = LogFile(str(Path(folder) / "0.log"), max_bytes)
        for chunk in chunks:
            file.write("stdout", chunk)
        file.close()
        assert asyncio.run(read(Path(folder))) == b"".join(chunks)


def test_following_ends_with_the_container(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script="for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"))
        await cluster.log_until("p", "1")
        async with asyncio.timeout(10):
            assert (await cluster.log("p", follow=True)).split() == list("123456")

    run(scenario, tmp_path)


def test_the_previous_run(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        flag = tmp_path / "flag"
        script = (
            f"if [ -e {flag} ]; then echo second; sleep 60; fi; touch {flag}; echo first; exit 1"
        )
        await cluster.run(pod(script=script, restartPolicy="Always"))
        await cluster.pod_until("p", lambda p: container(p)["restartCount"] == 1, "restarts")
        await cluster.log_until("p", "second")
        assert await cluster.log("p", previous=True) == "first\n"

    run(scenario, tmp_path)


def test_what_there_is_no_log_of(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.faults.delay_start(seconds=60)
        await cluster.run(pod(script="exit 0"))
        await cluster.pod_until("p", lambda p: container(p)["state"], "is taken")
        with pytest.raises(ApiError, match='container "main" in pod "p" is waiting to start'):
            await cluster.log("p")
        with pytest.raises(ApiError, match='previous terminated container "main" in pod "p"'):
            await cluster.log("p", previous=True)

    run(scenario, tmp_path)


def test_over_http(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(pod(script=f"{COUNT}; sleep 0.5; echo last"))
        await cluster.log_until("p", "line 5")
        headers = {"Authorization": f"Bearer {cluster.token}"}
        path = "/api/v1/namespaces/default/pods/p/log"
        async with httpx.AsyncClient(
            base_url=cluster.url, headers=headers, trust_env=False
        ) as http:
            tail = await http.get(path, params={"tailLines": "1"})
            assert tail.text == "line 5\n"
            followed = await http.get(path, params={"follow": "true"}, timeout=10)
            assert followed.text.endswith("line 5\nlast\n")
            wrong = await http.get(path, params={"previous": "true"})
            assert wrong.status_code == 400

    run(scenario, tmp_path)
