"""Gives every Python process of a pod the pod's network: its names, its address, its partitions.

The kubelet puts this folder first on PYTHONPATH, so the interpreter imports this module at start,
in child processes too. There being no network namespace, it does in the process what the
namespace and the cluster's DNS would do outside:

- names of pods and Services resolve by a file that the kubelet rewrites as pods come and go;
- the host name is the pod's;
- a server that listens on all addresses listens on the pod's address, so that two pods may use
  the same port, and the pod's own clients find it under ``localhost``;
- connections leave from the pod's address;
- connections to a pod behind a partition go where nobody ever answers;
- connections to other pods go by the cluster's relay, while that is open, which can delay them.

It also puts the pod's service account in its place, see :mod:`penstock_account`.

Only Python's ``socket`` module is covered: native code (Gloo, uvloop, curl) resolves names by the
machine's resolver, so look a name up in Python and hand on the address. A ``sitecustomize`` of the
user's own is run afterwards. Written to add one millisecond beside importing ``socket``.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _install(path: str) -> None:
    import _socket
    import socket

    settings: dict[str, str] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, _, value = line.rstrip("\n").partition(" ")
            settings[key] = value
    address = settings["address"]
    hostname = settings["hostname"]
    search = settings["search"].split()
    hosts_file, blocked_file, ports = settings["hosts"], settings["blocked"], settings["ports"]
    blackhole_host, blackhole_port = settings["blackhole"].split()
    blackhole = (blackhole_host, int(blackhole_port))
    relay = settings["relay"]
    pod_prefix = address.rpartition(".")[0].rpartition(".")[0] + "."

    get_addresses = socket.getaddrinfo
    get_host = socket.gethostbyname
    get_host_extended = socket.gethostbyname_ex
    base = _socket.socket
    table: dict[str, list[str]] = {}
    version: object = None

    def look_up(name: object) -> "list[str] | None":
        """The addresses of a cluster name; None for a name that is not the cluster's."""
        nonlocal table, version
        if isinstance(name, bytes):
            name = name.decode("ascii", "replace")
        if not isinstance(name, str) or not name or name[-1].isdigit() or ":" in name:
            return None
        name = name.rstrip(".").lower()
        if name == hostname.lower():
            return [address]
        try:
            stat = os.stat(hosts_file)
            now = (stat.st_mtime_ns, stat.st_ino)
            if now != version:
                fresh: dict[str, list[str]] = {}
                with open(hosts_file, encoding="utf-8") as file:
                    for line in file:
                        ip, _, full_name = line.strip().partition(" ")
                        fresh.setdefault(full_name, []).append(ip)
                table, version = fresh, now
        except OSError:
            table = {}
        for candidate in (name, *(f"{name}.{domain}" for domain in search)):
            if candidate in table:
                return table[candidate]
        if name.endswith((".svc", ".cluster.local")):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return None

    def getaddrinfo(
        host: "Any",
        port: "Any",
        family: int = 0,
        type: int = 0,  # noqa: A002  # the name of socket.getaddrinfo's own parameter
        proto: int = 0,
        flags: int = 0,
    ) -> "list[Any]":
        found = look_up(host)
        if found is None:
            return get_addresses(host, port, family, type, proto, flags)
        answers = []
        for ip in found:
            answers += get_addresses(ip, port, family, type, proto, flags)
        return answers

    def gethostbyname(name: str) -> str:
        found = look_up(name)
        return found[0] if found else get_host(name)

    def gethostbyname_ex(name: str) -> "tuple[str, list[str], list[str]]":
        found = look_up(name)
        return (name, [], list(found)) if found else get_host_extended(name)

    def is_blocked(ip: str) -> bool:
        try:
            with open(blocked_file, encoding="utf-8") as file:
                blocked = file.read().split()
        except OSError:
            return False
        if ip == address:
            return False
        if ip.startswith(pod_prefix):
            return "pods" in blocked or ip in blocked
        return ip in blocked

    def relayed(ip: str) -> "tuple[str, int] | None":
        """Where connections to another pod go first, if they do."""
        if ip == address or not ip.startswith(pod_prefix):
            return None
        try:
            with open(f"{relay}/place", encoding="utf-8") as file:
                relay_host, relay_port = file.read().split()
        except OSError:
            return None
        return relay_host, int(relay_port)

    def target(sock: socket.socket, to: "Any") -> "Any":
        """Where a connection really goes, its own end being put on the pod's address."""
        if sock.family != socket.AF_INET or not isinstance(to, tuple) or len(to) != 2:
            return to
        found = look_up(to[0])
        host, port = (found[0] if found else to[0]), to[1]
        if host in ("127.0.0.1", "localhost") and os.path.exists(f"{ports}/{port}"):
            host = address
        if is_blocked(host):
            return blackhole
        if host.startswith("127.") and sock.type & 0xF == socket.SOCK_STREAM:
            by = relayed(host)
            try:
                if sock.getsockname()[1] == 0:
                    if by is None:
                        sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
                    base.bind(sock, (address, 0))
                if by is not None:
                    own, own_port = sock.getsockname()
                    with open(f"{relay}/{own}:{own_port}", "w", encoding="utf-8") as note:
                        note.write(f"{host} {port}")
                    return by
            except OSError:
                pass  # the address is a courtesy; the connection matters
        return (host, port)

    def connect(self: socket.socket, to: "Any") -> None:
        base.connect(self, target(self, to))

    def connect_ex(self: socket.socket, to: "Any") -> int:
        return base.connect_ex(self, target(self, to))

    def bind(self: socket.socket, to: "Any") -> None:
        # Compared with, not bound.
        if self.family == socket.AF_INET and isinstance(to, tuple) and to[0] in ("", "0.0.0.0"):  # noqa: S104
            base.bind(self, (address, *to[1:]))
        elif self.family == socket.AF_INET6 and isinstance(to, tuple) and to[0] in ("", "::"):
            if self.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
                # There is no own IPv6 address to give it; a free port keeps out of others' way.
                base.bind(self, ("::1", 0, *to[2:]))
                return
            base.bind(self, (f"::ffff:{address}", *to[1:]))
        else:
            base.bind(self, to)
            return
        try:
            with open(f"{ports}/{self.getsockname()[1]}", "w"):
                pass
        except OSError:
            pass

    socket.getaddrinfo = getaddrinfo
    socket.gethostbyname = gethostbyname
    socket.gethostbyname_ex = gethostbyname_ex
    socket.gethostname = lambda: hostname
    # Every socket of the process is to use it.
    socket.socket.connect = connect  # type: ignore[method-assign, assignment]
    # Every socket of the process is to use it.
    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign, assignment]
    if address != "127.0.0.1":
        # Every socket of the process is to use it.
        socket.socket.bind = bind  # type: ignore[method-assign, assignment]


def _run_the_users_own() -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    import importlib.machinery
    import importlib.util

    # Only what stands behind this folder: were those before it searched too, two such hooks would
    # find each other without end.
    entries = [os.path.abspath(entry) for entry in sys.path]
    if _FOLDER not in entries:
        return
    behind = sys.path[entries.index(_FOLDER) + 1 :]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _find_the_account() -> None:
    folder = os.environ.get("PENSTOCK_SERVICE_ACCOUNT_DIR", "")
    import penstock_account  # type: ignore[import-not-found]  # beside this file

    if folder or any(map(os.path.isdir, penstock_account.FOLDERS)):
        penstock_account.install(folder)


_settings_file = os.environ.get("PENSTOCK_POD_NETWORK")
if _settings_file and os.path.exists(_settings_file):
    _install(_settings_file)
    _find_the_account()
_run_the_users_own()
