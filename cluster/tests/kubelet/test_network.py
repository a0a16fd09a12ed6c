"""A pod's own address, names, partitions: what a network namespace and DNS would give."""

from __future__ import annotations

from pathlib import Path

from cluster.tests.kubelet.clusters import Cluster, pod, python, run, until

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{os.environ['HOSTNAME']} {self.client_address[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8476), Handler)
print("listening", flush=True)
server.serve_forever()
"""

CLIENT = """
import sys, time, urllib.request, urllib.error
while True:
    for name in sys.argv[1:]:
        try:
            print("got", urllib.request.urlopen(f"http://{name}:8476/", timeout=2).read().decode())
        except OSError as error:
            print("error", getattr(error, "reason", error))
    time.sleep(0.1)
"""


def service(name: str, **spec) -> dict:
    selector = {"selector": {"app": name}, "clusterIP": "None", "ports": [{"port": 8476}]}
    return {"metadata": {"name": name}, "spec": selector | spec}


def server(name: str, hostname: str = "", app: str = "job", source: str = SERVER) -> dict:
    identity = {"hostname": hostname, "subdomain": app} if hostname else {}
    return python(name, source, labels={"app": app}, **identity)


def client(name: str, *targets: str, source: str = CLIENT) -> dict:
    return pod(name, container={"command": ["python", "-u", "-c", source], "args": list(targets)})


def test_two_pods_listen_on_all_addresses_at_the_same_port(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.run(server("a"), server("b"))
        for name in ("a", "b"):
            await cluster.log_until(name, "listening")
        addresses = [(await cluster.pod(name))["status"]["podIP"] for name in ("a", "b")]
        await cluster.run(client("c", *addresses))
        log = await cluster.log_until("c", "got b")
        own = (await cluster.pod("c"))["status"]["podIP"]
        assert f"got a {own}\n" in log

    run(scenario, tmp_path)


def test_names_of_a_headless_service(tmp_path: Path) -> None:
    names = (
        "trainer-0.job.default.svc",
        "trainer-0.job.default.svc.cluster.local",
        "trainer-0.job",
        "trainer-0.job.default",
        "job.default.svc",
    )

    async def scenario(cluster: Cluster) -> None:
        await cluster.api.create("services", service("job"), "default")
        await cluster.run(server("job-trainer-0-1", "trainer-0"))
        await cluster.log_until("job-trainer-0-1", "listening")
        await cluster.run(*(client(f"c{i}", name) for i, name in enumerate(names)))
        for number in range(len(names)):
            await cluster.log_until(f"c{number}", "got trainer-0 ")

    run(scenario, tmp_path)


def test_a_replaced_pod_is_found_at_its_new_address_by_running_processes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        publishing = service("job", publishNotReadyAddresses=True)
        await cluster.api.create("services", publishing, "default")
        await cluster.run(server("t-1", "trainer-0"), client("c", "trainer-0.job.default.svc"))
        await cluster.log_until("c", "got trainer-0")
        old = (await cluster.pod("t-1"))["status"]["podIP"]
        await cluster.api.delete("pods", "t-1", "default")
        await cluster.gone("t-1")
        await cluster.log_until("c", "Name or service not known")
        seen = len(await cluster.log("c"))
        await cluster.run(server("t-2", "trainer-0"))

        async def found_again() -> bool:
            return "got trainer-0" in (await cluster.log("c"))[seen:]

        await until(found_again, "the new pod is found")
        assert (await cluster.pod("t-2"))["status"]["podIP"] != old

    run(scenario, tmp_path)


def test_only_ready_pods_have_a_name_unless_the_service_says_otherwise(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.api.create("services", service("job"), "default")
        never = {"exec": {"command": ["false"]}, "periodSeconds": 1}
        unready = server("t", "trainer-0")
        unready["spec"]["containers"][0]["readinessProbe"] = never
        await cluster.run(unready, client("c", "trainer-0.job.default.svc"))
        await cluster.log_until("t", "listening")
        await cluster.log_until("c", "Name or service not known")
        assert "got" not in await cluster.log("c")
        change = {"spec": {"publishNotReadyAddresses": True}}
        await cluster.api.patch("services", "job", change, "default")
        await cluster.log_until("c", "got trainer-0")

    run(scenario, tmp_path)


def test_child_processes_and_own_sitecustomize_and_localhost(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os; os.environ['OWN'] = 'ran'\n")
    source = """
import os, subprocess, sys, socket, threading
child = '''
import os, socket
print("child", socket.gethostbyname("me.job.default.svc"), os.environ["OWN"])
'''
listener = socket.create_server(("", 9000))
threading.Thread(target=listener.accept, daemon=True).start()
socket.create_connection(("localhost", 9000), timeout=5).close()
print("localhost works", listener.getsockname()[0], socket.gethostname())
subprocess.run([sys.executable, "-c", child], check=True)
"""

    async def scenario(cluster: Cluster) -> None:
        publishing = service("job", publishNotReadyAddresses=True)
        await cluster.api.create("services", publishing, "default")
        me = server("p", "me", source=source)
        me["spec"]["containers"][0]["env"] = [{"name": "PYTHONPATH", "value": f"{tmp_path}/site"}]
        await cluster.run(me)
        ended = await cluster.ended("p")
        address = ended["status"]["podIP"]
        assert await cluster.log("p") == (f"localhost works {address} me\nchild {address} ran\n")

    run(scenario, tmp_path)


def test_an_unknown_name_of_the_cluster_fails_at_once(tmp_path: Path) -> None:
    source = """
import socket, time
began = time.monotonic()
try:
    socket.getaddrinfo("nobody.job.default.svc", 80)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME, time.monotonic() - began < 0.5)
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.run(python("p", source))
        await cluster.ended("p")
        assert await cluster.log("p") == "True True\n"

    run(scenario, tmp_path)


def test_asyncio_finds_names_too(tmp_path: Path) -> None:
    source = """
import asyncio
async def main():
    reader, writer = await asyncio.open_connection("trainer-0.job.default.svc", 8476)
    writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
    print((await reader.read()).split()[-2].decode())
    writer.close()
asyncio.run(main())
"""

    async def scenario(cluster: Cluster) -> None:
        await cluster.api.create("services", service("job"), "default")
        await cluster.run(server("t", "trainer-0"))
        await cluster.ready("t")
        await cluster.log_until("t", "listening")
        await cluster.run(python("c", source))
        await cluster.ended("c")
        assert await cluster.log("c") == "trainer-0\n"

    run(scenario, tmp_path)


def test_clusters_side_by_side_have_different_addresses(tmp_path: Path) -> None:
    async def scenario(outer: Cluster) -> None:
        from penstock_cluster.cluster import ClusterOptions

        async with Cluster(ClusterOptions(folder=tmp_path / "second", tls=False)) as inner:
            blocks = set()
            for cluster in (outer, inner):
                await cluster.run(pod(script="sleep 60"))
                address = (await cluster.ready("p"))["status"]["podIP"]
                blocks.add(address.split(".")[1])
            assert len(blocks) == 2

    run(scenario, tmp_path)
