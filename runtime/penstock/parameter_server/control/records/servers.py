"""The servers that a trainer knows: who they are, who still lives, and who should own parameters.

A server is one life of one process (rank, incarnation, nonce). A newer process of the same pod
takes the place of an older one, which has lost what it held. Two incarnations of a rank may live
side by side while one replaces the other: the newer one is wanted as soon as it reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.parameter_server.control.records.timeouts import Timeouts
from penstock.parameter_server.layout import Layout, ServerAddress, ServerId
from penstock.parameter_server.protocol import ServerReport
from penstock.parameter_server.spec import ModelSpec

Key = tuple[int, int]
"""Rank and incarnation: one pod."""

MAX_SERVERS: Final = 8192
MAX_REPLACED: Final = 4096


@dataclass(frozen=True, slots=True)
class ServerPod:
    """What the cluster says of a server's pod."""

    leaving: bool = False
    memory_bytes: int | None = None


@dataclass
class ServerState:
    """The newest report of one server."""

    report: ServerReport
    since: float
    seen: float
    mismatched_since: float | None = None  # it does not hold what it should

    @property
    def id(self) -> ServerId:
        """Which process it is."""
        return self.report.server

    @property
    def address(self) -> ServerAddress:
        """Where workers reach it."""
        return ServerAddress(id=self.id, address=self.report.address)


@dataclass
class ServerRegistry:
    """The servers of one job."""

    timeouts: Timeouts
    pods: Mapping[Key, ServerPod] | None = None  # that live; None: outside a cluster
    ended: frozenset[Key] = frozenset()
    at_least: int = 1  # outside a cluster: how many to wait for at the beginning
    cap: int | None = None  # ranks from it on are to go
    servers: dict[Key, ServerState] = field(default_factory=dict)
    _replaced: dict[str, None] = field(default_factory=dict)
    _missing_since: float | None = None

    def record(self, report: ServerReport, now: float) -> bool:
        """Take in a report; False if a newer process has taken the caller's place."""
        key = (report.server.rank, report.server.incarnation)
        if report.server.nonce in self._replaced or key in self.ended:
            return False
        known = self.servers.get(key)
        if known is None or known.id != report.server:
            if known is not None:
                self._replace(known.id.nonce)
            elif len(self.servers) >= MAX_SERVERS:
                return False
            self.servers[key] = ServerState(report, now, now)
        else:
            known.seen = now
            if report.serial >= known.report.serial:  # a held report may be older than another
                known.report = report
        return True

    def set_pods(self, pods: Mapping[Key, ServerPod], ended: frozenset[Key]) -> None:
        """The cluster's pods of servers, by rank and incarnation."""
        self.pods, self.ended = pods, ended

    def get(self, server: ServerId) -> ServerState | None:
        """What is known of a server; None if it has not reported, or was replaced."""
        known = self.servers.get((server.rank, server.incarnation))
        return known if known is not None and known.id == server else None

    def is_lost(self, server: ServerId, suspected: bool, since: float, now: float) -> bool:
        """Whether what a server holds is lost.

        ``since``: from when on reports can be expected.
        """
        key = (server.rank, server.incarnation)
        if key in self.ended or server.nonce in self._replaced:
            return True
        known = self.get(server)
        silent = now - (known.seen if known is not None else since)
        if self.pods is not None and key not in self.pods and silent >= self.timeouts.gone:
            return True
        mismatched = known.mismatched_since if known is not None else None
        if mismatched is not None and now - mismatched >= self.timeouts.gone:
            return True
        return silent >= (self.timeouts.suspected if suspected else self.timeouts.silent)

    def is_leaving(self, server: ServerId) -> bool:
        """Whether a server was asked to go, by what it or its pod says."""
        known = self.get(server)
        pod = (self.pods or {}).get((server.rank, server.incarnation))
        draining = known is not None and known.report.draining
        return draining or (pod is not None and pod.leaving)

    def wanted(self, layout: Layout | None, now: float) -> list[ServerAddress]:
        """The servers that should own the parameters now, of those that are there.

        Where all are about to go, those that own something stay.
        """
        newest: dict[int, ServerState] = {}
        leaving: list[ServerState] = []
        for (rank, incarnation), server in self.servers.items():
            if not self._is_there(server, now):
                continue
            if self.is_leaving(server.id):
                leaving.append(server)
            elif self.cap is None or rank < self.cap:
                before = newest.get(rank)
                if before is None or before.id.incarnation < incarnation:
                    newest[rank] = server
        if not newest and layout is not None:
            newest = {s.id.rank: s for s in leaving if layout.index_of(s.id) is not None}
        return [newest[rank].address for rank in sorted(newest)]

    def missing(self, wanted: list[ServerAddress]) -> set[int]:
        """Ranks whose pods exist and are to stay, but of which no server is there."""
        if self.pods is None:
            return set()
        expected = {
            rank
            for (rank, _), pod in self.pods.items()
            if not pod.leaving and (self.cap is None or rank < self.cap)
        }
        return expected - {server.id.rank for server in wanted}

    def find_change(
        self, layout: Layout, spec: ModelSpec | None, now: float
    ) -> tuple[list[ServerAddress], str]:
        """The servers that should own the parameters instead of a layout's, if it is time for that.

        Returns them (none: no change) and, where they are too small, in what. `note_missing` first.
        """
        wanted = self.wanted(layout, now)[: len(layout.owners)]
        missing = self.missing(wanted)
        ids, owners = {s.id for s in wanted}, {s.id for s in layout.servers}
        if not ids or ids == owners:
            return [], ""
        if any(not self._reports(owner, now) for owner in owners - ids):
            return [], ""  # until it is known whether it is lost
        if owners <= ids:  # more servers: no hurry
            if missing and now - (self._missing_since or now) < self.timeouts.expected:
                return [], ""
            if self._settling(now):
                return [], ""
        short = self.find_shortage(spec, wanted)
        return ([], short) if short else (wanted, "")

    def note_missing(self, layout: Layout, now: float) -> None:
        """Remember since when servers are missing whose pods exist."""
        missing = self.missing(self.wanted(layout, now)[: len(layout.owners)])
        self._missing_since = (self._missing_since or now) if missing else None

    def first_owners(self, first: bool, since: float, now: float) -> list[ServerAddress]:
        """The servers of a layout from nothing; none while others should be waited for."""
        wanted = self.wanted(None, now)
        few = first and self.pods is None and len(wanted) < self.at_least
        if few:
            return []  # their number was given: fewer are not what was asked for
        patience = self.timeouts.expected if first else self.timeouts.gone
        if now - since < patience and (self.missing(wanted) or self._settling(now)):
            return []
        return wanted

    def find_shortage(self, spec: ModelSpec | None, servers: list[ServerAddress]) -> str:
        """Why a model does not fit these servers; empty: it does, or nobody knows."""
        memory = self.memory_bytes(servers)
        if spec is None or memory is None or spec.bytes <= memory:
            return ""
        return (
            f"the model needs {spec.bytes} bytes with its optimizer's state, and {len(servers)} "
            f"parameter servers have {memory} bytes of memory together: ask for more servers, or "
            "for more memory for each"
        )

    def memory_bytes(self, servers: list[ServerAddress]) -> int | None:
        """The memory of some servers together; None where one's is not known."""
        total = 0
        for server in servers:
            limit = self.memory_limit(server.id)
            if limit is None:
                return None
            total += limit
        return total

    def memory_limit(self, server: ServerId) -> int | None:
        """The memory that a server may use, if anybody says."""
        pod = (self.pods or {}).get((server.rank, server.incarnation))
        if pod is not None and pod.memory_bytes is not None:
            return pod.memory_bytes
        known = self.get(server)
        return known.report.memory_limit_bytes if known is not None else None

    def clear_mismatches(self) -> None:
        """Begin anew to judge who holds what: something else is to be held from now on."""
        for server in self.servers.values():
            server.mismatched_since = None

    def forget(self, keep: set[ServerId], now: float) -> None:
        """Drop the servers that have been silent for long and own nothing."""
        for key, server in list(self.servers.items()):
            silent = now - server.seen > 4 * self.timeouts.silent or key in self.ended
            if silent and server.id not in keep:
                del self.servers[key]

    def _settling(self, now: float) -> bool:
        """Whether more servers may be about to come, where nobody says how many."""
        newest = max((server.since for server in self.servers.values()), default=float("-inf"))
        return self.pods is None and now - newest < self.timeouts.settle

    def _reports(self, server: ServerId, now: float) -> bool:
        known = self.get(server)
        return known is not None and now - known.seen < self.timeouts.suspected

    def _is_there(self, server: ServerState, now: float) -> bool:
        key = (server.id.rank, server.id.incarnation)
        listed = self.pods is None or key in self.pods
        return listed and key not in self.ended and now - server.seen < self.timeouts.suspected

    def _replace(self, nonce: str) -> None:
        self._replaced[nonce] = None
        while len(self._replaced) > MAX_REPLACED:
            del self._replaced[next(iter(self._replaced))]
