"""How fast the embedded API server starts, writes and tells watchers, and what 10,000 pods weigh.

    python -m benchmarks.local_cluster --json

The server runs in a process of its own, as a user would start it, and is spoken to over loopback
HTTP by other processes: plain sockets that send prepared requests and only look for the end of the
reply, so that not the client is measured. Objects are pods of a job as the controller makes them.

* ``startup_seconds``: from starting the process, interpreter and imports included, to the first
  request that is answered.
* ``creates_per_second``, ``writes_per_second``: pods created by ``--writers`` processes, and the
  mixture create, patch of the status, patch of the metadata, delete.
* ``watch_events_per_second``: events delivered to ``--watchers`` watches of all pods while the same
  mixture is written, first write to last event; every watcher must get every event.
* ``rss_mb_10000_pods``: resident memory of the server that holds them, and what one pod adds.

On a machine with other work the rates ``..._per_cpu_second`` (of the server's own processor time)
are what one core of its own would give.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from benchmarks import programs

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
START_LIMIT_SECONDS = 30.0
EVENTS_LIMIT_SECONDS = 120.0
MEBIBYTE = 2**20
REQUESTS_PER_POD = 4
#: One more than requests: a pod is marked for deletion, then it goes.
EVENTS_PER_POD = 5


class Event(Protocol):
    def set(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def pod(name: str) -> dict[str, Any]:
    """A worker's pod, about as large as the controller makes them."""
    variables = [{"name": f"PENSTOCK_VARIABLE_{i}", "value": f"value-{i}"} for i in range(16)]
    resources = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "penstock.dev/job": "bench",
                "penstock.dev/role": "worker",
                "penstock.dev/rank": name.rpartition("-")[2],
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": name,
            "subdomain": "bench",
            "automountServiceAccountToken": False,
            "schedulingGates": [{"name": "penstock.dev/placement"}],
            "containers": [
                {
                    "name": "main",
                    "image": "penstock/examples:latest",
                    "command": ["penstock", "run", "--", "python", "train.py"],
                    "env": variables,
                    "resources": {"requests": resources, "limits": resources},
                }
            ],
        },
    }


class Client:
    """One connection that is kept alive; one request at a time."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            "HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\nUser-Agent: bench/1\r\n"
            f"Authorization: Bearer {token}\r\n"
        )

    def prepared(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> bytes:
        """The bytes of a request."""
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        typed = f"Content-Type: {kind}\r\n" if data else ""
        head = f"{method} {path} {self._head}{typed}Content-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    def send(self, request: bytes) -> bytes:
        """The whole reply; ``RuntimeError`` when it is not a success."""
        self._socket.sendall(request)
        reply = self._socket.recv(65536)
        while (end := reply.find(b"\r\n\r\n")) < 0:
            reply += self._more()
        at = reply.lower().find(b"content-length:", 0, end)
        size = end + 4 + int(reply[at + 15 : reply.find(b"\r\n", at)])
        while len(reply) < size:
            reply += self._more()
        if reply[9:10] != b"2":
            raise RuntimeError(f"{request[:100]!r}: {reply[:600]!r}")
        return reply

    def _more(self) -> bytes:
        piece = self._socket.recv(65536)
        if not piece:
            raise RuntimeError("the server closed the connection")
        return piece

    def watch(self) -> socket.socket:
        """Open a watch of all pods from now on; the socket gives its stream."""
        self._socket.sendall(
            self.prepared(
                "GET",
                f"{PODS}?watch=1&sendInitialEvents=false"
                "&resourceVersionMatch=NotOlderThan&timeoutSeconds=600",
            )
        )
        head = self._socket.recv(65536)
        if b" 200 " not in head[:16]:
            raise RuntimeError(f"watch refused: {head[:600]!r}")
        return self._socket


@dataclass(frozen=True)
class Server:
    """The server under test, in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    token: str
    startup_seconds: float
    startup_cpu_seconds: float

    @classmethod
    def start(cls) -> Server:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.local_cluster", "--serve"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with exit code {process.wait()}")
        facts = json.loads(line)
        client = Client(facts["port"], facts["token"])
        client.send(client.prepared("GET", "/readyz"))
        seconds = time.perf_counter() - begin
        times = psutil.Process(process.pid).cpu_times()
        cpu = float(times.user + times.system)
        return cls(process, facts["port"], facts["token"], seconds, cpu)

    def client(self) -> Client:
        return Client(self.port, self.token)

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        programs.end(self.process)


def serve_until_killed() -> None:
    """What the server's process does."""
    from penstock_cluster.apiserver import serve

    async def main() -> None:
        async with serve() as server:
            port = int(server.url.rpartition(":")[2])
            print(json.dumps({"port": port, "token": server.token}), flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def requests_for(client: Client, name: str, *, mixed: bool) -> list[bytes]:
    """The requests about one pod."""
    create = client.prepared("POST", PODS, pod(name))
    if not mixed:
        return [create]
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    labels = {"metadata": {"annotations": {"penstock.dev/step": "1200"}}}
    return [
        create,
        client.prepared("PATCH", f"{PODS}/{name}/status", status, STRATEGIC),
        client.prepared("PATCH", f"{PODS}/{name}", labels, MERGE),
        client.prepared("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0"),
    ]


def write(
    port: int, token: str, prefix: str, count: int, mixed: bool, ready: Any, go: Event
) -> None:
    """One writer: prepares its requests, waits for the start, sends them one after another."""
    client = Client(port, token)
    prepared = [
        request
        for number in range(count)
        for request in requests_for(client, f"{prefix}-{number}", mixed=mixed)
    ]
    ready.release()
    go.wait()
    for request in prepared:
        client.send(request)


def receive(port: int, token: str, watchers: int, expected: int, ready: Any, done: Any) -> None:
    """Open watches and count their events, one JSON document a line."""
    sockets = [Client(port, token).watch() for _ in range(watchers)]
    counts = dict.fromkeys(sockets, 0)
    for connection in sockets:
        connection.setblocking(False)
    ready.release()
    import selectors

    selector = selectors.DefaultSelector()
    for connection in sockets:
        selector.register(connection, selectors.EVENT_READ, connection)
    end = time.monotonic() + EVENTS_LIMIT_SECONDS
    while min(counts.values()) < expected and time.monotonic() < end:
        for key, _ in selector.select(1.0):
            connection = key.data
            # An event ends with a newline; the frames of the stream end with CR and newline.
            piece = connection.recv(MEBIBYTE)
            counts[connection] += piece.count(b"\n") - piece.count(b"\r")
    done.put((time.perf_counter(), list(counts.values())))


def run_writers(server: Server, writers: int, each: int, prefix: str, *, mixed: bool) -> float:
    """Seconds from the start to the last reply."""
    ready, go = multiprocessing.Semaphore(0), multiprocessing.Event()
    processes = [
        multiprocessing.Process(
            target=write,
            args=(server.port, server.token, f"{prefix}-{index}", each, mixed, ready, go),
        )
        for index in range(writers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire(timeout=START_LIMIT_SECONDS)
    begin = time.perf_counter()
    go.set()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a writer ended with exit code {process.exitcode}")
    return time.perf_counter() - begin


def measure_writes(server: Server, writers: int, pods: int) -> dict[str, float]:
    each = pods // writers
    cpu = server.cpu_seconds()
    seconds = run_writers(server, writers, each, "create", mixed=False)
    created_cpu = server.cpu_seconds() - cpu
    cpu = server.cpu_seconds()
    mixed_seconds = run_writers(server, writers, each, "mixed", mixed=True)
    mixed_cpu = server.cpu_seconds() - cpu
    creates, writes = each * writers, each * writers * REQUESTS_PER_POD
    return {
        "creates_per_second": round(creates / seconds),
        "creates_per_cpu_second": round(creates / created_cpu),
        "writes_per_second": round(writes / mixed_seconds),
        "writes_per_cpu_second": round(writes / mixed_cpu),
    }


def measure_watches(server: Server, writers: int, watchers: int, pods: int) -> dict[str, float]:
    each = pods // writers
    expected = each * writers * EVENTS_PER_POD
    ready = multiprocessing.Semaphore(0)
    done: multiprocessing.Queue[tuple[float, list[int]]] = multiprocessing.Queue()
    receiver = multiprocessing.Process(
        target=receive, args=(server.port, server.token, watchers, expected, ready, done)
    )
    receiver.start()
    ready.acquire(timeout=START_LIMIT_SECONDS)
    cpu = server.cpu_seconds()
    begin = time.perf_counter()
    run_writers(server, writers, each, "watched", mixed=True)
    # perf_counter is the same clock in every process of the machine.
    end, counts = done.get(timeout=EVENTS_LIMIT_SECONDS)
    receiver.join()
    if any(count != expected for count in counts):
        raise RuntimeError(f"watchers got {counts} events, {expected} were written")
    delivered = sum(counts)
    return {
        "watch_events_delivered": delivered,
        "watch_events_per_second": round(delivered / (end - begin)),
        "watch_events_per_cpu_second": round(delivered / (server.cpu_seconds() - cpu)),
    }


def measure_memory(pods: int, writers: int) -> dict[str, float]:
    server = Server.start()
    try:
        empty = server.rss_bytes()
        run_writers(server, writers, pods // writers, "held", mixed=False)
        full = server.rss_bytes()
        client = server.client()
        listed = client.send(client.prepared("GET", PODS))
        if listed.count(b'"kind":"Pod"') + listed.count(b'"uid":"') < pods:
            raise RuntimeError("not all pods are there")
        return {
            "rss_mb_empty": round(empty / MEBIBYTE, 1),
            f"rss_mb_{pods}_pods": round(full / MEBIBYTE, 1),
            "bytes_per_pod": round((full - empty) / pods),
            f"rss_mb_{pods}_pods_listed": round(server.rss_bytes() / MEBIBYTE, 1),
        }
    finally:
        server.stop()


def measure_startup(runs: int) -> dict[str, float]:
    seconds, cpu_seconds = [], []
    for _ in range(runs):
        server = Server.start()
        server.stop()
        seconds.append(server.startup_seconds)
        cpu_seconds.append(server.startup_cpu_seconds)
    return {
        "startup_seconds": round(statistics.median(seconds), 3),
        "startup_seconds_slowest": round(max(seconds), 3),
        "startup_cpu_seconds": round(statistics.median(cpu_seconds), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--writers", type=int, default=2, help="writing processes")
    parser.add_argument("--watchers", type=int, default=10)
    parser.add_argument("--pods", type=int, default=4000, help="pods per phase")
    parser.add_argument("--held", type=int, default=10_000, help="pods held for the memory")
    parser.add_argument("--starts", type=int, default=5, help="starts to take the median of")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_until_killed()
        return
    result: dict[str, float] = measure_startup(arguments.starts)
    server = Server.start()
    try:
        result |= measure_writes(server, arguments.writers, arguments.pods)
        result |= measure_watches(
            server, arguments.writers, arguments.watchers, arguments.pods // 2
        )
    finally:
        server.stop()
    result |= measure_memory(arguments.held, arguments.writers)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        for name, value in result.items():
            print(f"{name:32} {value:>12}")


if __name__ == "__main__":
    main()
