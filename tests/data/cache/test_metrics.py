"""What a cache has counted, as Prometheus reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.base.listener import address_of, create_listener
from penstock.data.cache.node.contents import Contents
from penstock.data.cache.node.metrics import FAMILIES, MetricsServer, exposition

COUNTS: dict[str, Any] = {
    "hits": 65,
    "misses": 35,
    "hit_bytes": 6500,
    "miss_bytes": 3500,
    "seen": 100,
    "unseen": 25,
    "held_bytes": 1 << 40,
    "remote_hits": 5,
    "refused_answers": 1,
    "quota_bytes": 1 << 39,
    "wanted_bytes": 1 << 41,
    "data_set_bytes": 1 << 42,
    "waiting": 1.5,
    "spared_per_gib": 0.25,
}


def read(text: str) -> dict[tuple[str, str], float]:
    """Each figure by name and path, as Prometheus' own reader has it."""
    return {
        (sample.name, sample.labels.get("path", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_was_counted() -> None:
    found = read(exposition({"/data": COUNTS}, 2 << 40))
    assert found == {
        ("penstock_cache_capacity_bytes", ""): 2 << 40,
        ("penstock_cache_hits_total", "/data"): 65,
        ("penstock_cache_misses_total", "/data"): 35,
        ("penstock_cache_hit_bytes_total", "/data"): 6500,
        ("penstock_cache_miss_bytes_total", "/data"): 3500,
        ("penstock_cache_remote_hits_total", "/data"): 5,
        ("penstock_cache_refused_answers_total", "/data"): 1,
        ("penstock_cache_bytes", "/data"): 1 << 40,
        ("penstock_cache_seen_ratio", "/data"): 0.8,
        ("penstock_cache_quota_bytes", "/data"): 1 << 39,
        ("penstock_cache_wanted_bytes", "/data"): 1 << 41,
        ("penstock_cache_data_set_bytes", "/data"): 1 << 42,
        ("penstock_cache_waiting_ratio", "/data"): 1.5,
        ("penstock_cache_spared_per_gib", "/data"): 0.25,
    }


@pytest.mark.parametrize("path", ['/a "b"', "/a\\b", "/a\nb", "/ä", "/bad\udcff"])
def test_any_path_is_a_label(path: str) -> None:
    found = read(exposition({path: COUNTS}, 1))
    [label] = {label for _, label in found if label}
    assert label == path.replace("\udcff", "?")


def test_before_the_first_read_nothing_has_passed_it_by(tmp_path: Path) -> None:
    """And what a real cache reports has every figure that is shown, but for what is not known."""
    found = read(exposition(Contents(1 << 20, [str(tmp_path)]).report(), 1 << 20))
    unknown = {"quota_bytes", "wanted_bytes", "waiting_ratio", "spared_per_gib"}
    named = {name.removeprefix("penstock_cache_") for name, _ in found}
    assert named == {family.name for family in FAMILIES} - unknown | {"capacity_bytes"}
    assert found["penstock_cache_seen_ratio", str(tmp_path)] == 1


def test_it_is_served_until_the_end() -> None:
    said, healthy = iter(["first\n", "second\n"]), [True]
    with create_listener("127.0.0.1", 0) as listener:
        url = f"http://{address_of(listener)}"
        server = MetricsServer(listener, lambda: next(said), lambda: healthy[0])
        try:
            with httpx.Client(timeout=20, trust_env=False) as client:
                assert client.get(f"{url}/healthz").text == "ok\n"
                answer = client.get(f"{url}/metrics")
                assert re.match(r"text/plain; version=0\.0\.4", answer.headers["content-type"])
                assert answer.text == "first\n"
                assert client.get(f"{url}/metrics").text == "second\n", "as it is now"
                assert client.get(f"{url}/other").status_code == 404
                healthy[0] = False
                assert client.get(f"{url}/healthz").status_code == 503
                assert client.post(f"{url}/metrics").status_code == 405
        finally:
            server.end()
    with pytest.raises(httpx.ConnectError), httpx.Client(trust_env=False) as client:
        client.get(f"{url}/healthz", timeout=20)
