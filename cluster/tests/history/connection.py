"""A client of its own connection, and watchers that can be cut off and come back."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.parse
from typing import Any

from penstock_cluster.testing import RunningCluster

_TIMEOUT_SECONDS = 20.0
_EVENTS_SECONDS = 5.0
Json = dict[str, Any]


class Connection:
    """One keep-alive connection to the config maps of one namespace."""

    def __init__(self, cluster: RunningCluster, namespace: str) -> None:
        parts = urllib.parse.urlsplit(cluster.url)
        self._http = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS
        )
        self._headers = {"Authorization": f"Bearer {cluster.token}"}
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def send(
        self, method: str, name: str = "", body: Json | None = None, query: Json | None = None
    ) -> tuple[int, Json]:
        """Status and JSON of one exchange. A PATCH is a merge patch."""
        path = f"{self.path}/{name}" if name else self.path
        if query:
            path += f"?{urllib.parse.urlencode(query)}"
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body)
        self._http.request(method, path, data, {**self._headers, "Content-Type": kind})
        response = self._http.getresponse()
        return response.status, json.loads(response.read())

    def stream(self, query: Json) -> http.client.HTTPResponse:
        """Open a watch; the connection is then its own."""
        path = f"{self.path}?{urllib.parse.urlencode({**query, 'watch': '1'})}"
        self._http.request("GET", path, headers=self._headers)
        response = self._http.getresponse()
        assert response.status == 200, response.read()
        return response

    def close(self) -> None:
        if self._http.sock is not None:
            with contextlib.suppress(OSError):  # the server closed it first
                self._http.sock.shutdown(2)
        self._http.close()


class Watcher:
    """Gathers events in a thread; :meth:`reconnect` goes on from the last version seen."""

    def __init__(
        self, cluster: RunningCluster, namespace: str, version: str, label: tuple[str, str] | None
    ) -> None:
        self._place = (cluster, namespace)
        self._query = {"labelSelector": "=".join(label)} if label else {}
        self.events: list[Json] = []
        self._version = version
        self._open()

    def _open(self) -> None:
        self._connection = Connection(*self._place)
        query = {**self._query, "resourceVersion": self._version, "timeoutSeconds": "300"}
        response = self._connection.stream(query)
        self._thread = threading.Thread(target=self._read, args=(response,), daemon=True)
        self._thread.start()

    def _read(self, response: http.client.HTTPResponse) -> None:
        try:
            while line := response.readline():
                if line.strip():
                    self.events.append(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass  # cut off by close()

    def wait_for(self, count: int) -> None:
        """Wait until that many events have come; fewer after a while is for the caller to see."""
        end = time.monotonic() + _EVENTS_SECONDS
        while len(self.events) < count and time.monotonic() < end:
            time.sleep(0.001)

    def reconnect(self) -> None:
        """Cut the connection, at whatever point, and go on after the last event seen."""
        self.close()
        if self.events:
            self._version = self.events[-1]["object"]["metadata"]["resourceVersion"]
        self._open()

    def close(self) -> None:
        self._connection.close()
        self._thread.join(_EVENTS_SECONDS)
