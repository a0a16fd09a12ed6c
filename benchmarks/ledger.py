"""How fast the shard ledger hands out a billion-sample epoch, and how much memory it needs.

    python -m benchmarks.ledger --json

One core, one process: 64 holders lease slots of 1,024 samples, complete them out of order, and one
lease in a hundred expires and is done again. Every event goes through the journal's encoding, as in
the trainer. On a machine with other work ``leases_per_cpu_second`` is what one core of its own
would give. ``rss_mb`` is the resident memory of the whole process at its highest.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from pathlib import Path

from penstock.data.ledger import Ledger, LedgerOptions, Permutation
from penstock.data.ledger.journal import append

SAMPLES_PER_SLOT = 1024
HOLDERS = 64
EXPIRED = 0.01


def highest_memory_mb() -> float:
    """Peak resident memory of this program, in MiB.

    Where there is /proc it is asked: the peak that getrusage gives counts from before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(samples: int, seconds: float | None) -> dict[str, float]:
    """Lease and complete a whole epoch, or as much of it as fits into ``seconds``."""
    slots = -(-samples // SAMPLES_PER_SLOT)
    ledger = Ledger(LedgerOptions(total_slots=slots, lease_seconds=20.0))
    chance = random.Random(0)
    held: list[tuple[int, int, int]] = []
    now, leases, journal_bytes = 0.0, 0, 0
    began, cpu = time.perf_counter(), time.process_time()
    while not ledger.finished:
        lease = ledger.lease(f"worker-{leases % HOLDERS}", now, 1)
        if lease is not None:
            leases += 1
            held.append((lease.fence, lease.start, lease.stop))
        if lease is None or len(held) >= HOLDERS:
            fence, start, stop = held.pop(chance.randrange(len(held)))
            if lease is not None and chance.random() < EXPIRED:
                ledger.give_back(fence)
            else:
                ledger.complete(fence, start, stop)
        if leases % 256 == 0:
            now += 0.01
            for holder in range(HOLDERS):
                ledger.renew(f"worker-{holder}", now)
            journal_bytes += len(append(ledger.take_events()))
        if seconds is not None and time.perf_counter() - began > seconds:
            break
    spent, cpu = time.perf_counter() - began, time.process_time() - cpu
    order = Permutation(samples, seed=1)
    lookups = time.perf_counter()
    looked_up = min(samples, 200 * SAMPLES_PER_SLOT)
    for start in range(0, looked_up, SAMPLES_PER_SLOT):
        order.take(start, min(start + SAMPLES_PER_SLOT, samples))
    lookups = time.perf_counter() - lookups
    return {
        "samples": samples,
        "samples_done": min(samples, ledger.consumed * SAMPLES_PER_SLOT),
        "leases": leases,
        "leases_per_second": round(leases / spent),
        "leases_per_cpu_second": round(leases / cpu),
        "samples_ordered_per_second": round(looked_up / lookups),
        "journal_bytes_per_lease": round(journal_bytes / max(1, leases), 1),
        "seconds": round(spent, 2),
        "rss_mb": round(highest_memory_mb(), 1),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000_000)
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = run(options.samples, options.seconds)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value:,}")


if __name__ == "__main__":
    main()
