"""Every listener that there is: who may connect, what strangers can try, and what that costs.

The table of `docs/operations/security.md` is made of these rows, and each is attacked by
`test_listeners.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One row."""

    name: str
    made: tuple[str, ...]
    """``MODULE:CALL``, as `tests.house.listeners` finds them."""
    where: str
    """Port and address."""
    who: str
    """Who may connect, and how that is known."""
    attack: str
    bound: str


HTTP_BOUND: Final = (
    "8192 connections, fewer where the process may have fewer descriptors: the oldest that waits "
    "goes; 10 s to the end of a head, 60 s to that of a body; heads of 64 KiB; a line of the log "
    "in 10 s"
)

LISTENERS: Final = (
    Listener(
        name="trainer",
        made=(
            "runtime/penstock/trainer/service.py:create_listener",
            "runtime/penstock/trainer/service.py:make_server",
            "runtime/penstock/trainer/server.py:make_server",
        ),
        where="8476, HTTP",
        who="agents, sessions, data workers and parameter servers of the job: its token; data "
        "workers of its share group, to report and no more: the group's token",
        attack="400 idle connections with 256 descriptors; heads of 300 MiB",
        bound=HTTP_BOUND,
    ),
    Listener(
        name="Brain",
        made=(
            "api/penstock/api/server.py:create_listener",
            "api/penstock/api/server.py:make_server",
        ),
        where="8443, HTTPS; without TLS 8477, HTTP",
        who="trainers, the scheduler and people: a token that the cluster knows, which in the "
        "chart is one for a Brain alone, or an API token",
        attack="400 idle connections with 256 descriptors, with TLS and without; heads of 300 MiB",
        bound=f"{HTTP_BOUND}; before that 5 s for the handshake of TLS",
    ),
    Listener(
        name="data plane of `penstock run --data-workers`",
        made=(
            "runtime/penstock/data/standalone.py:create_listener",
            "runtime/penstock/data/standalone.py:make_server",
        ),
        where="any port of loopback, HTTP",
        who="data workers that the command has started: a token of its own",
        attack="400 idle connections with 256 descriptors; heads of 300 MiB",
        bound=HTTP_BOUND,
    ),
    Listener(
        name="probes and metrics of controller and scheduler",
        made=(
            "kube/penstock/kube/probes.py:create_listener",
            "kube/penstock/kube/probes.py:create_server",
            "kube/penstock/kube/probes.py:listen",
        ),
        where="8478 and 8479, HTTP",
        who="the kubelet and Prometheus: anybody",
        attack="400 idle connections with 256 descriptors; heads of 300 MiB",
        bound="128 connections, the newest; 30 s for each; a line of the log in 10 s",
    ),
    Listener(
        name="consumer of a training process, or of a data worker of stage 1",
        made=(
            "runtime/penstock/data/consuming/consumer.py:create_listener",
            "runtime/penstock/data/consuming/consumer.py:create_local_listener",
        ),
        where="any port of the pod; an abstract Unix socket",
        who="data workers of the job: a proof that they hold its token; those of its share group: "
        "that they hold the group's",
        attack="240 silent connections with 256 descriptors; 300 that send what is no handshake; "
        "200 open files that nobody asked for",
        bound="32 connections without a proof, 10 s for each; heads of 4 KiB; "
        "a line of the log in 10 s",
    ),
    Listener(
        name="cache of a node",
        made=(
            "runtime/penstock/data/cache/node/process.py:create_listener",
            "runtime/penstock/data/cache/node/process.py:create_local_listener",
            "runtime/penstock/data/cache/node/metrics.py:make_server",
        ),
        where="its ports for other nodes' caches and for metrics; a Unix socket",
        who="processes of the node, with an open file each; caches of other nodes: a proof that "
        "they hold the token; metrics: anybody",
        attack="240 connections that say nothing, or half of something, with 256 descriptors; 300 "
        "that send what is no request; 20 MiB without an end; open files that nobody asked for; "
        "wrong and cut answers in the tests of the cache",
        bound="32 connections without a request or a proof at each socket, 2048 in all; heads of "
        "64 KiB; a time-out for each answer",
    ),
    Listener(
        name="keeper of a share group on one machine",
        made=("runtime/penstock/data/share_keeper.py:start_unix_server",),
        where="a Unix socket in a folder of the user's own",
        who="processes of the same user: nobody else may look into the folder",
        attack="240 connections that say nothing, or half of something, with 256 descriptors; "
        "900 that send what is no request; 20 MiB without an end; open files that nobody asked for",
        bound="32 connections without a request, 10 s for each; requests of 256 KiB; 256 members; "
        "a line of the log in 10 s",
    ),
    Listener(
        name="parameter server",
        made=("runtime/penstock/parameter_server/server/process.py:create_listener",),
        where="any port of the pod",
        who="workers and servers of the job: a proof that they hold its token",
        attack="240 silent connections with 256 descriptors; 300 that send what is no handshake",
        bound="64 connections without a proof, 10 s for each; heads of 4 KiB; "
        "a line of the log in 10 s",
    ),
    Listener(
        name="link to a worker whose machine is checked",
        made=("runtime/penstock/trainer/nodecheck/link.py:create_listener",),
        where="any port of the pod, for seconds before its program begins, and between two steps "
        "where machines are measured then",
        who="workers of the job: a proof that they hold its token",
        attack="20 silent connections",
        bound="4 connections, others are closed at once; 10 s for a handshake, 3 s after it; "
        "heads of 4 KiB",
    ),
    Listener(
        name="control channel of a group",
        made=("runtime/penstock/trainer/group/step_barrier.py:create_listener",),
        where="any port of the pod",
        who="members of the group: the job's token",
        attack="240 silent connections; 300 MiB before a hello",
        bound="64 connections without a hello, 2 s for each; a hello of 4 KiB",
    ),
    Listener(
        name="store and collectives of a group",
        made=(
            "runtime/penstock/trainer/group/collective.py:create_listener",
            "runtime/penstock/trainer/group/collective.py:TCPStore",
            "runtime/penstock/trainer/group/collective.py:create_device",
        ),
        where="any ports of the pod, at its address alone",
        who="members of the group; **nobody is asked**: admit the job's pods only, by a "
        "NetworkPolicy or a mesh",
        attack="64 idle connections",
        bound="PyTorch's own; none for connections",
    ),
    Listener(
        name="readiness of data workers and parameter servers",
        made=("runtime/penstock/data/serving/readiness.py:create_listener",),
        where="8481 and 8482",
        who="the kubelet: anybody; nothing is read or said",
        attack="1000 connections, one after the other",
        bound="one connection, which is closed at once",
    ),
    Listener(
        name="what training processes state to their agent",
        made=("runtime/penstock/trainer/processes.py:create_local_listener",),
        where="an abstract Unix socket, datagrams",
        who="processes that the agent's program started: Linux says whose a datagram is",
        attack="2000 statements by another process",
        bound="1 KiB for each, 4096 processes",
    ),
    Listener(
        name="embedded API server",
        made=(
            "cluster/penstock_cluster/apiserver/server.py:Config",
            "cluster/penstock_cluster/apiserver/server.py:bind",
            "cluster/penstock_cluster/apiserver/server.py:create_server",
            "cluster/penstock_cluster/apiserver/server.py:listen",
        ),
        where="8480, HTTPS on loopback",
        who="processes of this machine: tokens and certificates, as with any API server",
        attack="400 idle connections with 256 descriptors; heads of 300 MiB",
        bound="heads of 64 KiB; a line of the log in 10 s; 5 s for the handshake of TLS, 10 s to "
        "the end of a head",
    ),
    Listener(
        name="slow network of the embedded cluster",
        made=("cluster/penstock_cluster/kubelet/network/relay.py:start_server",),
        where="a free port on loopback, while `relay_pods` is on",
        who="processes of pods, which leave a note of their own port and their goal in the "
        "cluster's folder",
        attack="400 connections without a note",
        bound="each ends at once; 4 MiB for each direction of one that has a note",
    ),
)

NO_LISTENERS: Final = {
    "base/penstock/base/listener.py": "where they are made",
    "base/penstock/base/http/server.py": "where they are made",
    "cluster/penstock_cluster/kubelet/hook/sitecustomize.py": "gives the sockets of programs in "
    "pods the address of their pod",
    "cluster/penstock_cluster/kubelet/network/addresses.py": "takes names and numbers; nobody "
    "can connect to them",
    "cluster/penstock_cluster/kubelet/network/hosts.py": "takes no connections, on purpose",
}
"""Calls that make none, or are the function by which the others make theirs."""


def markdown_table() -> str:
    """The rows, as the documentation has them."""
    lines = [
        "| listener | where | who may connect | tried against it | what it costs at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {each.name} | {each.where} | {each.who} | {each.attack} | {each.bound} |"
        for each in LISTENERS
    ]
    return "\n".join(lines) + "\n"
