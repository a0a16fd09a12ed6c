"""The rate that each resource allows: the least of them bounds the job, and names what binds.

DS-Analyzer's min(G, P, F) (PVLDB 14(5), section 5.1) with P divided into what it consists of: the
cores of the training pod, the workers that the loader may have, the cores of data workers, and the
network between them. A batch that comes from elsewhere costs cores of the training pod too, which
FastFlow's rule charges for all batches and a share here.

All rates are samples a second. A bound is only a bound: `closed_loop` says how near a job comes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.throughput.limits.cut import NOTHING, Cut, Split, split
from penstock.throughput.limits.fetching import read_by, storage_rate
from penstock.throughput.limits.making import stages_at, step_at
from penstock.throughput.profiles.profile import Profile
from penstock.throughput.profiles.resources import Resources


@dataclass(frozen=True, slots=True)
class Placement:
    """Where batches are made: a share of them divided at a cut, the others in the training pod."""

    cut: Cut = NOTHING
    share: float = 0.0


HERE = Placement()


def bounds(
    profile: Profile, resources: Resources, placement: Placement = HERE
) -> Mapping[str, float]:
    """The rate that each resource allows by itself; without those that are not used."""
    stages = stages_at(profile, resources)
    share = share_of(resources, placement)
    parts = split(read_by(stages, placement.cut, resources), placement.cut)
    cpu = sum(stage.cpu_seconds for stage in stages)
    busy = cpu + sum(stage.blocked_seconds for stage in stages)
    loop = step_at(profile, resources) / profile.batch_size
    transport = profile.transport
    receive = transport.receive_cpu_seconds * parts.bytes_in
    send_out = transport.send_cpu_seconds * parts.bytes_out
    here = (1 - share) * cpu + share * (parts.local_cpu + receive + send_out)
    handed = 1.0 if resources.workers else share  # the training takes its own from nobody
    taking = handed * profile.hand_over_seconds / profile.batch_size + share * parts.in_program
    found = {
        "accelerator": 1 / (loop + taking),
        "cores": _per(resources.cores, here + profile.step_cores * loop),
    }
    own = parts.local_cpu + parts.local_blocked - parts.in_program - parts.in_threads
    stay = (1 - share) * busy + share * own
    if resources.workers:
        found["workers"] = _per(resources.workers, stay)
    else:  # the training makes them itself, and does not train meanwhile
        found["accelerator"] = 1 / (1 / found["accelerator"] + stay)
    if (speed := storage_rate(profile, resources)) is not None:
        found["storage"] = speed
    if share:
        makers = resources.data_workers * max(1, round(resources.data_worker_cores))
        working = makers / remote_cores_rate(profile, resources, parts)
        found["data workers"] = _per(makers, share * (working + parts.remote_blocked))
        moved = max(parts.bytes_in, parts.bytes_out)
        found["network"] = _per(resources.network_bytes_per_second, share * moved)
    return found


def share_of(resources: Resources, placement: Placement) -> float:
    """The share that is made elsewhere.

    A training without local workers makes only what nobody has, and data workers have every batch
    before it is wanted: there all are theirs, whatever the placement's share.
    """
    if not resources.data_workers or not placement.cut.moves or placement.share <= 0:
        return 0.0
    return placement.share if resources.workers else 1.0


def remote_cores_rate(profile: Profile, resources: Resources, parts: Split) -> float:
    """What the cores of all data workers could do if nothing blocked them, at a share of 1."""
    transport = profile.transport
    remote = parts.remote_cpu + transport.send_cpu_seconds * parts.bytes_in
    remote += transport.receive_cpu_seconds * parts.bytes_out
    cores = resources.data_workers * resources.data_worker_cores * resources.data_worker_speed
    return _per(cores, remote)


def binding(found: Mapping[str, float]) -> str:
    """The name of the least bound."""
    return min(found, key=lambda name: found[name])


def in_words(bound: str) -> str:
    """What people call it: not every training has an accelerator."""
    return {"accelerator": "the training", "workers": "loader workers"}.get(bound, bound)


def _per(amount: float, cost: float) -> float:
    return amount / cost if cost > 0 else math.inf
