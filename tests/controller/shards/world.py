"""Members of a division in a world of their own: Leases, a number, and time as a test has it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.shards import MOST_SHARDS, Share, holder_of
from penstock.controller.shards.member import (
    Begin,
    Blind,
    Contend,
    Got,
    Lease,
    Looked,
    Lost,
    Member,
    Order,
    Stop,
    step,
)

LEASE_SECONDS = 12.0
RENEW_SECONDS = 8.0
"""Who could not renew for so long does nothing any more."""
LOOK_SECONDS = 2.0
JOBS = [("team", f"job-{number}") for number in range(40)]


@dataclass
class Record:
    """A Lease in the API server."""

    holder: str = ""
    version: int = 0


@dataclass
class Process:
    """A process: its member, and a look that may be half done."""

    member: Member
    alive: bool = True
    reachable: bool = True
    renewed: float = 0.0
    number: int | None = None

    @property
    def owns(self) -> Share | None:
        return self.member.share if self.alive and self.member.works else None


class World:
    """What all processes share; each `read` is one call to the API server."""

    def __init__(self, processes: int) -> None:
        self.now = 0.0
        self.number = 1
        self.leases = [Record() for _ in range(MOST_SHARDS)]
        self.started = 0
        self.processes: list[Process] = []
        for _ in range(processes):
            self.start()

    def start(self) -> Process:
        self.started += 1
        process = Process(Member(f"process-{self.started}", LEASE_SECONDS, RENEW_SECONDS))
        self.processes.append(process)
        return process

    def living(self) -> list[Process]:
        return [one for one in self.processes if one.alive]

    def owners(self, job: tuple[str, str]) -> list[Process]:
        return [one for one in self.processes if one.owns is not None and one.owns.owns(*job)]

    def pass_time(self, seconds: float) -> None:
        """Who can, renews at the end; who could not for too long, stops."""
        self.now += seconds
        for process in self.living():
            share = process.member.share
            if share is None:
                continue
            record = self.leases[share.shard]
            if process.reachable and record.holder == holder_of(process.member.identity, share):
                record.version += 1
                process.renewed = self.now
            elif process.reachable or self.now - process.renewed >= RENEW_SECONDS:
                process.member, _ = step(process.member, Lost(), self.now)
                process.number = None

    def read(self, process: Process) -> None:
        """One call of a look: the number first, and then all Leases."""
        if not process.reachable:
            process.number = None
            self._obey(process, *step(process.member, Blind(), self.now))
            return
        leases: tuple[Lease, ...] = ()
        if process.number is None:
            process.number = self.number
            if process.member.needs_leases:
                return
        else:
            leases = tuple(
                Lease(shard, one.holder, str(one.version)) for shard, one in enumerate(self.leases)
            )
        number, process.number = process.number, None
        self._obey(process, *step(process.member, Looked(number, leases), self.now))

    def look(self, process: Process) -> None:
        """A whole look at once."""
        self.read(process)
        while process.number is not None:
            self.read(process)

    def _obey(self, process: Process, member: Member, orders: tuple[Order, ...]) -> None:
        process.member = member
        for order in orders:
            match order:
                case Contend(share, version):
                    record = self.leases[share.shard]
                    if str(record.version) == version:
                        record.holder = holder_of(member.identity, share)
                        record.version += 1
                        process.renewed = self.now
                        process.member, _ = step(process.member, Got(share), self.now)
                case Begin():
                    pass
                case Stop(share):
                    record = self.leases[share.shard]
                    if process.reachable and record.holder == holder_of(member.identity, share):
                        record.holder = ""
                        record.version += 1

    def settle(self, seconds: float) -> float:
        """Everybody looks now and then for so long; the longest that a job was without an owner."""
        until, without = self.now + seconds, dict.fromkeys(JOBS, self.now)
        longest = 0.0
        while self.now < until:
            for process in self.living():
                self.look(process)
            self.pass_time(LOOK_SECONDS)
            for job in JOBS:
                if self.owners(job):
                    without[job] = self.now
                longest = max(longest, self.now - without[job])
        return longest
