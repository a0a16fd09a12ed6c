from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.request import Request
from penstock.sim.cluster.arrivals import build_columns
from penstock.sim.cluster.experiments.detach import cpu_idle, detach, run
from penstock.sim.cluster.experiments.fgd import Workload
from penstock.sim.errors import SimulationError
from penstock.sim.traces.generator import generate_nodes, generate_pods
from penstock.sim.traces.shapes import NodeShape


@given(milli_cpu=st.integers(0, 200_000), share=st.floats(0, 1), gpus=st.integers(0, 8))
def test_detaching_neither_makes_nor_loses_cpu(milli_cpu: int, share: float, gpus: int) -> None:
    pod, workers = detach(Request(milli_cpu, 1, gpus), share)
    assert pod.milli_cpu + sum(worker.milli_cpu for worker in workers) == milli_cpu
    assert all(1000 <= worker.milli_cpu <= 8000 for worker in workers)
    assert gpus or not workers


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(SimulationError, match="must be from 0 to 1"):
        detach(Request(8000, 0, 1), share)


def test_idle_for_cpu_counts_only_what_cpu_alone_keeps_idle() -> None:
    columns = build_columns([NodeShape("a", 8000, 0, 4), NodeShape("b", 8000, 0, 0)])
    typical = {Request(4000, 0, 1): 0.5, Request(4000, 0, 8): 0.25, Request(1000, 0, 1): 0.25}
    assert cpu_idle(columns, typical) == 0
    columns.take(0, Request(6000))
    assert cpu_idle(columns, typical) == pytest.approx(0.5 * 4)


def test_detached_cpu_moves_to_where_there_is_some() -> None:
    nodes = [NodeShape(f"gpu-{index}", 8000, 0, 4) for index in range(4)]
    nodes += [NodeShape("cpu", 64_000, 0, 0)]
    workload = Workload("tight", nodes, [Request(4000, 0, 1)])
    whole = run(workload, 0.0, "stranding", 1)
    half = run(workload, 0.5, "stranding", 1)
    assert whole.allocated == 50
    assert whole.cpu_idle_gpus == pytest.approx(8)
    assert half.allocated == 100
    assert half.cpu_idle_gpus == 0


def test_half_of_the_cpu_detached_halves_what_lacks_cpu_on_a_generated_cluster() -> None:
    draw = np.random.default_rng(3)
    nodes = [
        *generate_nodes(40, draw),
        *(NodeShape(f"cpu-{i}", 96_000, 1 << 40, 0) for i in range(8)),
    ]
    heavy = [
        Request(3 * pod.milli_cpu // 2, 0, pod.accelerators, pod.accelerator_milli)
        for pod in generate_pods(400, draw)
        if pod.milli_cpu < 30_000
    ]
    workload = Workload("heavy", nodes, heavy)
    before, after = run(workload, 0.0, "fgd", 1), run(workload, 0.5, "fgd", 1)
    assert after.cpu_idle_gpus <= 0.5 * before.cpu_idle_gpus
    assert after.allocated >= before.allocated


def test_no_accelerators_anywhere_is_said() -> None:
    with pytest.raises(SimulationError, match="no accelerators at all"):
        run(Workload("cpu", [NodeShape("a", 1000, 0, 0)], [Request(1)]), 0.5, "fgd", 1)
