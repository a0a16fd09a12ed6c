from __future__ import annotations

import numpy as np

from penstock.scheduler.placement.engine import Placer
from penstock.scheduler.placement.random import Random
from tests.scheduler.clusters import columns_of, gpus


def placed(seed: int) -> list[tuple[str, tuple[int, ...]]]:
    columns = columns_of(*((f"n{index}", 8, 2) for index in range(6)))
    placer = Placer(columns, Random(np.random.default_rng(seed)))
    placements = placer.place_all([gpus(1, milli=500)] * 12)
    return [(p.node, p.devices) for p in placements if p is not None]


def test_one_seed_gives_one_run() -> None:
    assert placed(1) == placed(1)
    assert placed(1) != placed(2)


def test_every_node_and_every_device_has_its_turn() -> None:
    everything = [place for seed in range(8) for place in placed(seed)]
    assert len({node for node, _ in everything}) == 6
    assert len({devices for _, devices in everything}) == 2
