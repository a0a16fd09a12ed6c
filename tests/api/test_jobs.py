"""Jobs over HTTP."""

from __future__ import annotations

from tests.api.service import REGISTRATION, api, run, sample
from tests.brain.brains import Clock


def test_a_job_comes_back_as_it_was_registered(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            job = await service.register()
            for name, value in REGISTRATION.items():
                if name not in {"roles", "resource_limits", "signature"}:
                    assert job[name] == value
            assert job["resource_limits"] == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4"}
            assert job["roles"]["worker"]["max_replicas"] == 4
            assert job["roles"]["worker"]["cpu"] == "500m"
            assert job["signature"]["dataset"] == "mnist"
            assert (job["phase"], job["current_plan"]) == ("Active", 1)
            assert (await service.http.get("/v1/jobs/uid-1")).json() == job

    run(main)


def test_lists_are_filtered_and_paged(sqlite_url: str) -> None:
    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            for index in range(7):
                namespace = "even" if index % 2 == 0 else "odd"
                await service.register(f"uid-{index}", name=f"job-{index}", namespace=namespace)
                clock.advance(1)
            found = (await service.http.get("/v1/jobs", params={"namespace": "even"})).json()
            assert [job["uid"] for job in found["items"]] == ["uid-6", "uid-4", "uid-2", "uid-0"]
            assert found["continue"] is None

            seen: list[str] = []
            query: dict[str, str] = {"limit": "3"}
            while True:
                page = (await service.http.get("/v1/jobs", params=query)).json()
                seen += [job["uid"] for job in page["items"]]
                if page["continue"] is None:
                    break
                query["continue"] = page["continue"]
            assert seen == [f"uid-{index}" for index in reversed(range(7))]

            await service.http.post("/v1/jobs/uid-3/finish", json={"state": "Failed"})
            found = (await service.http.get("/v1/jobs", params={"phase": "Failed"})).json()
            assert [job["uid"] for job in found["items"]] == ["uid-3"]

    run(main)


def test_the_ledger_goes_through_as_bytes(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            url, octets = "/v1/jobs/uid-1/ledger", {"Content-Type": "application/octet-stream"}
            content = bytes(range(256)) * 4096  # 1 MiB
            answer = await service.http.put(
                url, params={"sequence": 7}, content=content, headers=octets
            )
            assert answer.status_code == 204
            got = await service.http.get(url)
            assert got.content == content
            assert got.headers["ledger-sequence"] == "7"
            old = await service.http.put(url, params={"sequence": 6}, content=b"x", headers=octets)
            assert (old.status_code, old.json()["type"]) == (
                409,
                "urn:penstock:problem:stale-ledger",
            )
            kind = await service.http.put(url, params={"sequence": 8}, content=b"x")
            assert kind.status_code == 415

    run(main)


def test_what_gpus_do_goes_in_by_pod_and_comes_out_by_role_and_as_metrics(
    sqlite_url: str,
) -> None:
    seen = {"gpus": 2, "gpu_utilization": 0.25, "gpu_memory_bytes": 30, "gpu_power_watts": 300.5}
    blind = {"cpu_cores": 1.0, "memory_bytes": 5}  # an agent of the release before

    async def main() -> None:
        clock = Clock()
        async with api(sqlite_url, clock=clock) as service:
            await service.register(name="digits")
            for job_roles in ({"0": blind}, {"0": blind, "1": {**blind, **seen}}):
                clock.advance(15)
                batch = {"samples": [sample(clock.now, roles={"worker": job_roles})]}
                answer = await service.http.post("/v1/jobs/uid-1/samples", json=batch)
                assert answer.status_code == 200, answer.text
            query = {"ranks": "true"}
            before, newest = (
                await service.http.get("/v1/jobs/uid-1/samples", params=query)
            ).json()["items"]
            assert before["roles"]["worker"]["gpus"] is None
            use, ranks = newest["roles"]["worker"], newest["ranks"]["worker"]
            assert (use["gpus"], use["gpu_utilization"], use["gpu_memory_bytes"]) == (2, 0.25, 30)
            assert (use["gpu_power_watts"], use["gpu_memory_total_bytes"]) == (300.5, None)
            assert ranks["0"]["gpus"] is None
            assert {name: ranks["1"][name] for name in seen} == seen

            labels = '{job="digits",namespace="default",role="worker"}'
            metrics = (await service.http.get("/metrics")).text
            assert f"penstock_job_gpu_utilization_ratio{labels} 0.25" in metrics
            assert f"penstock_job_gpus{labels} 2.0" in metrics
            assert "penstock_job_gpu_memory_capacity_bytes{" not in metrics
            clock.advance(61)
            assert labels not in (await service.http.get("/metrics")).text, "it fell silent"

            await service.brain.sweeper.sweep()
            (minute, *_) = (
                await service.http.get("/v1/jobs/uid-1/samples", params={"resolution": "1m"})
            ).json()["items"]
            use = minute["roles"]["worker"]
            assert (use["gpus"], use["gpu_utilization"], use["gpu_memory_bytes"]) == (2, 0.25, 30)

    run(main)


def test_probes_metrics_and_documents_need_no_token(sqlite_url: str) -> None:
    async def main() -> None:
        async with api(sqlite_url) as service:
            await service.register()
            assert (await service.http.get("/healthz")).text == "ok\n"
            assert (await service.http.get("/readyz")).text == "ok\n"
            metrics = (await service.http.get("/metrics")).text
            assert 'penstock_brain_jobs{phase="Active"} 1.0' in metrics
            assert 'penstock_brain_plans_total{algorithm="cold_create"' in metrics
            assert 'route="/v1/jobs/{uid}"' in metrics
            assert "uid-1" not in metrics
            docs = await service.http.get("/docs")
            assert docs.status_code == 200
            assert "PUT /v1/jobs/{uid}" in docs.text
            assert "<script" not in docs.text

    run(main)
