"""A program that ``TF_CONFIG`` tells of the others, as TensorFlow's are: it meets each of them.

Argument: the file that the chief tells in whom it met. The chief then ends; all others wait for
orders, as TensorFlow's servers do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
name = f"{task['type']}-{task['index']}"
if task["type"] != "evaluator":  # which is no part of the cluster that it is told of
    port = int(cluster[task["type"]][task["index"]].rpartition(":")[2])
    listener = socket.create_server((os.environ["PENSTOCK_POD_IP"], port))


def answer() -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(name.encode())


def ask(address: str) -> str:
    host, _, port = address.rpartition(":")
    for _ in range(600):
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                return connection.recv(64).decode()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{address} does not answer")


if task["type"] != "evaluator":
    threading.Thread(target=answer, daemon=True).start()
met = {
    f"{kind}-{place}": ask(address)
    for kind, addresses in cluster.items()
    for place, address in enumerate(addresses)
}
if task["type"] == "chief":
    Path(sys.argv[1]).write_text(json.dumps(met))
else:
    threading.Event().wait()
