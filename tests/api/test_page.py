"""The web page: what it shows, to whom, and that it is safe and whole without scripts."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from penstock.api.auth.tokens import ApiTokens, hash_of, new_token
from penstock.api.page.axis import figure, time_ticks, value_ticks
from penstock.api.page.input_panel import WIDTH, segments
from penstock.api.page.node_map import NodeState, heat_map, node_map, shade
from penstock.api.page.timeline import PlanMark, Point, thinned, timeline
from penstock.brain.configuration import ApiToken
from tests.api.service import Api, api, run, sample, server
from tests.brain.brains import START, Clock
from tests.throughput.programs import STARVING


class Page(HTMLParser):
    """The elements of a page that matter."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


async def populated(service: Api, clock: Clock) -> None:
    """A job with samples, a plan of the Brain and one of a person; three nodes."""
    await service.register(name="<b>bold</b>")
    for index in range(12):
        clock.advance(15)
        batch = {"samples": [sample(clock.now, steps_per_second=10.0 + index % 3)]}
        await service.http.post("/v1/jobs/uid-1/samples", json=batch)
    override = {
        "policy": "Pin",
        "roles": {"worker": {"replicas": 2}},
        "message": "<script>alert(1)</script>",
    }
    await service.http.post("/v1/jobs/uid-1/plans", json=override)
    for moment in range(5):
        nodes = [
            {
                "name": f"node-{n}",
                "milli_cpu": 8000,
                "free_milli_cpu": 1000 * n,
                "accelerators": 4,
                "free_accelerators": 2,
                "fragmentation": -0.5 + n / 2,
            }
            for n in range(3)
        ]
        body = {
            "time": clock.now + 60 * moment,
            "stranded_gpus": 2,
            "stranded_cpu_cores": 5.5,
            "nodes": nodes,
        }
        await service.http.put("/v1/cluster/snapshot", json=body)


def test_the_page_shows_jobs_the_timeline_and_the_nodes(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            answer = await service.http.get("/", params={"job": "uid-1"})
            assert answer.status_code == 200
            text = answer.text
            assert "&lt;b&gt;bold&lt;/b&gt;" in text
            assert "<b>bold" not in text
            page = Page(text)
            marks = [a for a in page.all("a") if "mark" in (a.get("class") or "")]
            assert [mark["href"] for mark in marks] == ["#plan-1", "#plan-2"]
            assert "person" in (marks[1]["class"] or "")
            assert "by a person" in (marks[1]["aria-label"] or "")
            assert {"plan-1", "plan-2"} <= {row.get("id") for row in page.all("tr")}
            assert "pinned by a person" in text
            assert "\N{MINUS SIGN}0.50" in text
            cells = [g for g in page.all("g") if "cell" in (g.get("class") or "")]
            assert len(cells) == 3
            assert "Fragmentation over time" in text

    run(main)


def test_gpus_are_on_the_page_of_a_job_that_reports_them(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            text = (await service.http.get("/", params={"job": "uid-1"})).text
            assert "What its pods use" in text
            assert "GPU" not in text.replace("accelerators", "")
            rank = {"cpu_cores": 1, "gpus": 2, "gpu_utilization": 0.37, "gpu_power_watts": 812.4}
            memory = {"gpu_memory_bytes": 40 * 2**30, "gpu_memory_total_bytes": 160 * 2**30}
            for index in range(3):
                clock.advance(15)
                batch = {"samples": [sample(clock.now, roles={"worker": {"0": rank | memory}})]}
                batch["samples"][0]["step"] = index
                answer = await service.http.post("/v1/jobs/uid-1/samples", json=batch)
                assert answer.status_code == 200, answer.text
            text = (await service.http.get("/", params={"job": "uid-1"})).text
            for words in ("37%", "40.0 GiB of 160.0 GiB", "812 W", "with its GPUs 37% busy"):
                assert words in text, words
            paths = [one for one in Page(text).all("path") if one.get("class") == "gpus"]
            assert len(paths) == 1
            assert (paths[0]["d"] or "").count("L") == 2

    run(main)


def test_it_needs_no_script_and_nothing_from_elsewhere(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            for path in ("/?job=uid-1", "/docs", "/?namespace=nowhere"):
                answer = await service.http.get(path)
                page = Page(answer.text)
                assert page.all("script") == []
                assert not any(
                    name.startswith("on") for _, attributes in page.tags for name in attributes
                )
                for tag, attributes in page.tags:
                    for name in ("src", "href", "action"):
                        value = attributes.get(name) or "/"
                        assert value.startswith(("/", "#", "data:,")), (tag, value)
                        assert not value.startswith("//")
                assert "`" not in answer.text
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "script-src" not in policy

    run(main)


def test_it_can_be_used_with_a_keyboard_and_read_aloud(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            page = Page((await service.http.get("/?job=uid-1")).text)
            assert page.all("html")[0]["lang"] == "en"
            first = page.all("a")[0]
            assert (first["class"], first["href"]) == ("skip", "#content")
            assert not [a for _, a in page.tags if (a.get("tabindex") or "0") not in {"0", "-1"}]
            ids = [a["id"] for _, a in page.tags if a.get("id")]
            assert len(ids) == len(set(ids))
            for anchor in page.all("a"):
                target = anchor.get("href") or ""
                if target.startswith("#"):
                    assert target[1:] in ids, target
            for svg in page.all("svg"):
                assert svg.get("role") in {"img", "group"}
                assert svg.get("aria-label") or svg.get("aria-labelledby")
            assert page.all("th")
            assert all(head.get("scope") in {"col", "row"} for head in page.all("th"))
            assert [tag for tag, _ in page.tags if tag == "h1"] == ["h1"]

    run(main)


def test_who_may_not_see_is_asked_who_they_are(sqlite_url: str) -> None:
    async def main() -> None:
        token, digest = new_token()
        own, other = new_token()
        known = ApiTokens(
            [
                ApiToken(name="ada", sha256=digest),
                ApiToken(name="bob", sha256=hash_of(own), namespaces=["bobs"]),
            ]
        )
        async with api(sqlite_url, authenticator=known) as service:
            answer = await service.http.get("/")
            assert answer.status_code == 401
            assert "token" in answer.text
            wrong = await service.http.post("/session", data={"token": "wrong"})
            assert wrong.status_code == 401
            assert "set-cookie" not in wrong.headers
            for bad in ("", "a b", "a;b", "\u00e9", "x" * 40_000):
                refused = await service.http.post("/session", data={"token": bad})
                assert refused.status_code in {400, 401, 413}
            right = await service.http.post("/session", data={"token": token})
            assert (right.status_code, right.headers["location"]) == (303, "/")
            cookie = right.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            page = await service.http.get("/")
            assert page.status_code == 200
            assert "Log out token:ada" in page.text
            assert token not in page.text
            # The cookie is for the page alone.
            assert (await service.http.get("/v1/jobs")).status_code == 401
            await service.http.post("/session/end")
            assert (await service.http.get("/")).status_code == 401
            await service.http.post("/session", data={"token": own})
            narrow = await service.http.get("/")
            assert narrow.status_code == 200
            assert "may not list jobs in all namespaces" in narrow.text
            assert (await service.http.get("/?namespace=bobs")).status_code == 200
            assert other != own

    run(main)


def test_odd_parameters_do_no_harm(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            for query in ("job=nobody", "phase=Odd", "namespace=%3Cb%3E"):
                assert (await service.http.get(f"/?{query}")).status_code == 200
            assert (await service.http.get("/?continue=x")).status_code == 422

    run(main)


def picture(path: Path) -> tuple[int, int, set[bytes]]:
    """Width, height and colours of a PNG without interlacing."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    position, body, width, height, channels = 8, b"", 0, 0, 0
    while position < len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        kind = data[position + 4 : position + 8]
        content = data[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", content[:10])
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            body += content
        position += 12 + length
    raw = zlib.decompress(body)
    stride, before, colours = width * channels, bytearray(width * channels), set[bytes]()
    for line in range(height):
        start = line * (stride + 1)
        kind_of_filter, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for index in range(stride):
            left = row[index - channels] if index >= channels else 0
            above, corner = before[index], before[index - channels] if index >= channels else 0
            if kind_of_filter == 1:
                row[index] = (row[index] + left) & 255
            elif kind_of_filter == 2:
                row[index] = (row[index] + above) & 255
            elif kind_of_filter == 3:
                row[index] = (row[index] + (left + above) // 2) & 255
            elif kind_of_filter == 4:
                guess = left + above - corner
                best = min(
                    (abs(guess - value), order, value)
                    for order, value in enumerate((left, above, corner))
                )[2]
                row[index] = (row[index] + best) & 255
        colours |= {bytes(row[i : i + 3]) for i in range(0, stride, channels)}
        before = row
    return width, height, colours


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ground", "speed"),
    [
        ([], b"\xff\xff\xff", b"\x0b\x5c\xad"),
        (["--blink-settings=preferredColorScheme=0"], b"\x12\x16\x1b", b"\x7d\xb7\xf5"),
    ],
)
def test_a_browser_draws_it_light_and_dark(
    sqlite_url: str, tmp_path: Path, options: list[str], ground: bytes, speed: bytes
) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    file = tmp_path / "page.png"

    async def main() -> None:
        clock = Clock(START)
        async with (
            server(sqlite_url, clock=clock) as (url, brain),
            httpx.AsyncClient(base_url=url) as http,
        ):
            await populated(Api(http, brain), clock)
            await asyncio.to_thread(
                subprocess.run,
                [
                    browser,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    "--window-size=800,600",
                    f"--user-data-dir={tmp_path}/profile",
                    *options,
                    f"--screenshot={file}",
                    f"{url}/?job=uid-1",
                ],
                check=True,
                capture_output=True,
                timeout=45,
            )

    run(main)
    width, height, colours = picture(file)
    assert (width, height) == (800, 600)
    assert ground in colours
    assert speed in colours  # the line of the speed was drawn in the scheme's colour


def test_axes_have_round_values() -> None:
    assert value_ticks(73) == [0, 20, 40, 60, 80]
    assert value_ticks(0) == [0, 1]
    assert value_ticks(0.004) == pytest.approx([0, 0.001, 0.002, 0.003, 0.004])
    assert time_ticks(0, 3600) == [0, 600, 1200, 1800, 2400, 3000, 3600]
    assert len(time_ticks(0, 1e9)) <= 13
    assert [figure(v) for v in (0, 0.01234, 9.876, 1234.5, 1.5e7)] == [
        "0",
        "0.0123",
        "9.88",
        "1,234",
        "1.50e+07",
    ]


def test_a_long_silence_breaks_the_line_and_many_points_are_thinned() -> None:
    points = [Point(float(t), 1.0, 1) for t in (*range(0, 300, 15), *range(3000, 3300, 15))]
    chart = timeline(points, [PlanMark(1, 0.0, "plan 1", False)])
    assert chart is not None
    assert chart.speed.count("M") == 2
    half_a_label = 30  # of eight digits; one more would be cut off
    assert all(half_a_label < tick.place < chart.width - half_a_label for tick in chart.time_ticks)
    many = [Point(float(t), float(t % 7), 1) for t in range(10_000)]
    few = thinned(many, 600)
    assert len(few) == 600
    assert (few[0], few[-1]) == (many[0], many[-1])
    assert timeline([], []) is None


def test_colours_follow_the_sign_and_the_size() -> None:
    values = (-1.0, -0.3, -0.05, 0.0, 0.04, 0.3, 1.0)
    assert [shade(value) for value in values] == [
        "gpu5",
        "gpu2",
        "gpu1",
        "even",
        "even",
        "cpu2",
        "cpu5",
    ]
    nodes = [NodeState(f"n{i:04}", 0.0, 1, 2, 0, 0) for i in range(1500)]
    drawn = node_map(nodes)
    assert drawn is not None
    assert (len(drawn.cells), drawn.left_out) == (1000, 500)
    assert node_map([]) is None
    history = [(60.0 * t, {f"n{i}": i / 100 for i in range(90)}) for t in range(10)]
    heat = heat_map(history)
    assert heat is not None
    assert (len(heat.rows), heat.left_out, heat.rows[0].name) == (40, 50, "n89")
    assert heat_map(history[:1]) is None


DECISION = {
    "id": "uid-1:DataStall:1",
    "time": START + 60,
    "job_uid": "uid-1",
    "policy": "MaxThroughput",
    "reason": "DataStall",
    "message": "3 data workers of 1 cores at once promise 2.50 of 18 steps/s",
    "figures": {
        "data_workers": 3.0,
        "data_worker_cores": 1.0,
        "accelerated_data_workers": 2.0,
    },
}


async def with_input(service: Api) -> None:
    body = {"source": "job", "content": STARVING.to_json()}
    await service.http.put("/v1/jobs/uid-1/profile", json=body)
    cluster = {"time": START + 61, "stranded_gpus": 0.0, "stranded_cpu_cores": 0.0, "nodes": []}
    await service.http.put("/v1/cluster/snapshot", json={**cluster, "allocations": [DECISION]})


def test_where_the_input_time_goes_and_the_schedulers_decisions_are_on_the_page(
    sqlite_url: str,
) -> None:
    clock = Clock()

    async def work() -> None:
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            await with_input(service)
            text = (await service.http.get("/?job=uid-1")).text
            assert "waiting for input 60% of the time" in text
            assert "preparation 60%" in text
            assert "bound by workers" in text
            assert "scheduler (MaxThroughput)" in text
            assert "dataWorker: 3 \N{MULTIPLICATION SIGN} 1 CPU, acceleratedDataWorker: 2" in text
            page = Page(text)
            anchors = {one["id"] for one in page.all("tr") if "id" in one}
            links = {one["href"] for one in page.all("a")}
            decided = {one for one in anchors if one and one.startswith("decision-")}
            assert len(decided) == 1
            assert {f"#{one}" for one in decided} <= links
            assert not any("style" in attributes for _, attributes in page.tags)

    run(work)


def test_two_jobs_can_be_compared_by_who_may_see_both(sqlite_url: str) -> None:
    clock = Clock()

    async def work() -> None:
        async with api(sqlite_url, clock=clock) as service:
            await populated(service, clock)
            await service.register("uid-2", name="other")
            await with_input(service)
            text = (await service.http.get("/?job=uid-1&with=uid-2")).text
            assert 'id="comparison"' in text
            assert "limit: workers" in text
            assert "not measured" in text
            missing = (await service.http.get("/?job=uid-1&with=nobody")).text
            assert "no job has uid" in missing
            assert 'id="comparison"' not in missing

    run(work)


def test_the_parts_of_the_time_sum_to_it() -> None:
    for stalled, causes in (
        (0.6, {"fetch": 0.2, "preparation": 0.4}),
        (0.6, {"fetch": 0.5, "preparation": 0.4}),
        (0.6, {"fetch": 0.1}),
        (0.0, {}),
        (1.0, {"fetch": 1.0}),
    ):
        parts = segments(stalled, causes)
        assert sum(one.width for one in parts) == pytest.approx(WIDTH, abs=1.0)
        assert parts[0].name == "training"


def test_stages_of_the_input_are_kept_with_the_queue(sqlite_url: str) -> None:
    clock = Clock()

    async def work() -> None:
        async with api(sqlite_url, clock=clock) as service:
            await service.register()
            stages = [
                {"made_per_second": 4.0, "busy_share": 1.0},
                {"made_per_second": 4.0, "busy_share": 0.25},
            ]
            queue = {"enqueued_per_second": 4.0, "dequeued_per_second": 4.0}
            samples = [
                {**sample(clock.now - 1), "queue": queue},
                {**sample(clock.now), "queue": {**queue, "stages": stages}},
            ]
            sent = await service.http.post("/v1/jobs/uid-1/samples", json={"samples": samples})
            assert sent.status_code == 200
            found = (await service.http.get("/v1/jobs/uid-1/samples")).json()["items"]
            assert [one["queue"].get("stages") for one in found] == [None, stages]

    run(work)


def test_a_share_group_is_on_the_page_of_each_member(sqlite_url: str) -> None:
    clock = Clock()

    async def work() -> None:
        async with api(sqlite_url, clock=clock) as service:
            await service.register(name="one")
            share = {"group": "<sweep>", "data_workers": 3, "own_data_workers": 1}
            share |= {"made": 1000, "taken": 1600, "lag_tiles": 5, "cpu_cores": 1.5}
            batch = {"samples": [{**sample(clock.now), "share": share}]}
            sent = await service.http.post("/v1/jobs/uid-1/samples", json=batch)
            assert sent.status_code == 200
            text = (await service.http.get("/?job=uid-1")).text
            assert "Share group &lt;sweep&gt;" in text
            assert "1,000 made, 1,600 taken, so that each was taken 1.60 times" in text
            assert "5 tiles behind" in text
            found = (await service.http.get("/v1/jobs/uid-1/samples")).json()["items"]
            assert share.items() <= found[-1]["share"].items()

    run(work)
