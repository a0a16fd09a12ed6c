"""Replays a recorded scenario against a server and says where its answers differ."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cluster.tests.golden.comparison import differences, without_managed_fields
from cluster.tests.golden.placeholders import Bindings
from cluster.tests.golden.recordings import Scenario, Step, fixture
from cluster.tests.golden.trimming import trimmed

_HEADERS = ("Warning", "Retry-After", "Allow", "WWW-Authenticate", "Location")
_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 8.0
_EVENTS_SECONDS = 8.0
#: How long a watch that has sent all its events is watched for more of them.
_SETTLE_SECONDS = 0.05
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Json = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A server to replay against.

    Attributes:
        compact: makes the store forget its history.
    """

    url: str
    token: str
    compact: Callable[[], None]
    tls: ssl.SSLContext | None = None

    def connect(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=timeout_seconds, context=self.tls
            )
        return http.client.HTTPConnection(host, port, timeout=timeout_seconds)


@dataclass(frozen=True)
class Outcome:
    """What came of one step; equal when there are no differences."""

    scenario: str
    number: int
    about: str
    differences: tuple[str, ...]


@dataclass
class _Answer:
    status: int
    content_type: str | None
    headers: Json
    text: str

    def body(self) -> Any:
        if self.text.startswith("k8s\0"):  # how the recorder noted it
            return "<protobuf>"
        try:
            return json.loads(self.text) if self.text else None
        except ValueError:
            return self.text


class _Watch(threading.Thread):
    """One open watch; gathers the events."""

    def __init__(
        self,
        step: Step,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        super().__init__(name=f"golden-{step.facts['watch']}", daemon=True)
        self.step = step
        self.events: list[Any] = []
        self.ended = threading.Event()
        self._connection = connection
        self._response = response
        self.start()

    def run(self) -> None:
        try:
            while line := self._response.readline():
                if line.strip():
                    self.events.append(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass  # closed under our feet by close()
        self.ended.set()

    def close(self) -> bool:
        """Waits for what was recorded, then closes; whether the server had ended the watch."""
        facts = self.step.facts
        if facts["endedBy"] == "server":
            query = facts["request"].get("query", {})
            self.ended.wait(float(query.get("timeoutSeconds", "0")) + _EVENTS_SECONDS)
        else:
            end = time.monotonic() + _EVENTS_SECONDS
            while len(self.events) < len(facts["stream"]) and time.monotonic() < end:
                if self.ended.wait(0.005):
                    break
            time.sleep(_SETTLE_SECONDS)
        ended = self.ended.is_set()
        if self._connection.sock is not None and not ended:
            self._connection.sock.shutdown(2)
        self.join(_EVENTS_SECONDS)
        self._response.close()
        self._connection.close()
        return ended


@dataclass
class Player:
    """Plays one scenario; call :meth:`play` once."""

    target: Target
    scenario: Scenario
    bindings: Bindings = field(default_factory=Bindings)
    _watches: dict[str, _Watch] = field(default_factory=dict)
    _tokens: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, Json] = field(default_factory=dict)
    _connection: http.client.HTTPConnection | None = None

    def play(self) -> list[Outcome]:
        """One outcome per step, in the order of the steps."""
        found: dict[int, list[str]] = {}
        try:
            self._set_up()
            for step in self.scenario.steps:
                self._close_watches(step.facts.get("during", ()), found)
                for request in step.facts.get("before", ()):
                    self._quiet(request)
                found[step.number] = self._play(step)
            self._close_watches((), found)
        finally:
            for watch in self._watches.values():
                watch.close()
            if self._connection is not None:
                self._connection.close()
        return [
            Outcome(self.scenario.name, step.number, step.about, tuple(found[step.number]))
            for step in self.scenario.steps
        ]

    # Sending

    def _set_up(self) -> None:
        for path in self.scenario.setup.get("crds", ()):
            crd = fixture(path)
            self._ok({"method": "POST", "path": _CRDS, "body": crd})
            group, version = crd["spec"]["group"], crd["spec"]["versions"][0]["name"]
            plural = crd["spec"]["names"]["plural"]
            self._wait_for(f"/apis/{group}/{version}/{plural}")
        for name in self.scenario.setup.get("namespaces", ()):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._ok({"method": "POST", "path": "/api/v1/namespaces", "body": body})
            for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
                self._wait_for(f"/api/v1/namespaces/{name}/{path}")

    def _wait_for(self, path: str) -> None:
        end = time.monotonic() + _POLL_SECONDS
        while self._send({"method": "GET", "path": path}).status != 200:
            if time.monotonic() > end:
                raise AssertionError(f"{path} did not appear within {_POLL_SECONDS} s")
            time.sleep(0.01)

    def _quiet(self, request: Json) -> None:
        if request.get("compact"):
            self.target.compact()
        else:
            self._ok(request)

    def _ok(self, request: Json) -> Any:
        answer = self._send(request)
        if answer.status >= 300:
            raise AssertionError(f"{request['method']} {request['path']}: {answer.text[:500]}")
        return answer.body()

    def _send(self, request: Json) -> _Answer:
        if self._connection is None:
            self._connection = self.target.connect()
        connection = self._connection
        try:
            response = self._begin(connection, request)
            text = response.read().decode("utf-8", "replace")
        except (http.client.HTTPException, ConnectionError):
            # The server closes connections after some refusals; the next request needs a new one.
            connection.close()
            response = self._begin(connection, request)
            text = response.read().decode("utf-8", "replace")
        return _answer(response, text)

    def _begin(
        self, connection: http.client.HTTPConnection, request: Json
    ) -> http.client.HTTPResponse:
        query = request.get("query")
        target = request["path"] + (
            f"?{urllib.parse.urlencode(query, doseq=True)}" if query else ""
        )
        headers = {"Accept": "application/json", "User-Agent": "golden-recorder/1"}
        headers.update(request.get("headers", {}))
        body = request.get("body")
        data = None
        if body is not None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            headers.setdefault("Content-Type", "application/json")
        token = self._token(request.get("auth"))
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(request["method"], target, body=data, headers=headers)
        return connection.getresponse()

    def _token(self, auth: str | None) -> str:
        if auth is None:
            return self.target.token
        if auth == "none":
            return ""
        if auth == "invalid":
            return "not-a-token"
        if auth not in self._tokens:
            namespace, name = auth.removeprefix("serviceaccount ").split("/")
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            # A connection of its own: _send may be in the middle of a request.
            connection = self.target.connect()
            request = {"method": "POST", "path": path, "body": body}
            reply = json.loads(self._begin(connection, request).read())
            connection.close()
            self._tokens[auth] = reply["status"]["token"]
        return self._tokens[auth]

    # One step

    def _play(self, step: Step) -> list[str]:
        request = self._filled(step.request)
        if step.watch is not None:
            return self._open(step, request)
        if not step.facts.get("polled"):
            return self._compared(step, self._send(request))
        end = time.monotonic() + _POLL_SECONDS
        while True:
            kept = self.bindings.copy()
            found = self._compared(step, self._send(request))
            if not found or time.monotonic() > end:
                return found
            self.bindings.values = kept.values
            time.sleep(0.01)

    def _open(self, step: Step, request: Json) -> list[str]:
        connection = self.target.connect()
        response = self._begin(connection, request)
        found = _heads(step.response, _answer(response, ""))
        if response.status == 200:
            self._watches[step.facts["watch"]] = _Watch(step, connection, response)
        else:
            found.append(f"stream: refused with {response.read().decode()[:300]}")
            connection.close()
        return found

    def _close_watches(self, open_ones: Any, found: dict[int, list[str]]) -> None:
        for name in [name for name in self._watches if name not in open_ones]:
            watch = self._watches[name]
            ended = watch.close()
            del self._watches[name]
            recorded = watch.step.facts
            differ = found[watch.step.number]
            if ended is not (recorded["endedBy"] == "server"):
                differ.append(
                    f"endedBy: {recorded['endedBy']} != {'server' if ended else 'client'}"
                )
            got = self._cleaned(watch.events)
            differ += differences(recorded["stream"], got, self.bindings, "stream")

    def _compared(self, step: Step, answer: _Answer) -> list[str]:
        recorded = step.response
        found = _heads(recorded, answer)
        if "stream" in step.facts:
            lines = [json.loads(line) for line in answer.text.splitlines() if line.strip()]
            got = self._cleaned(lines)
            return found + differences(step.facts["stream"], got, self.bindings, "stream")
        if answer.status != recorded["status"]:
            shown = answer.text[:600]
            return [*found, f"body: not compared, for the status differs; got {shown}"]
        body = self._cleaned(answer.body())
        self._remember(body)
        if "trimmed" in recorded:
            try:
                body = trimmed(recorded["trimmed"], recorded["body"], body)
            except (KeyError, TypeError) as error:
                return [*found, f"body: cannot be trimmed ({error!r}): {answer.text[:300]}"]
        return found + differences(recorded["body"], body, self.bindings)

    def _cleaned(self, body: Any) -> Any:
        return without_managed_fields(body, keep=self.scenario.with_managed_fields)

    def _remember(self, body: Any) -> None:
        if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
            uid = body["metadata"].get("uid")
            if uid:
                self._seen[uid] = body

    # Placeholders in requests

    def _filled(self, request: Json) -> Json:
        missing = [
            name for name in self.bindings.unbound(json.dumps(request)) if name.startswith("<rv-")
        ]
        for name in missing:  # a version that the recorder read without recording it
            self.bindings.values[name] = self._present_version(request["path"])
        filled: Json = self._fill(request)
        if isinstance(filled.get("body"), dict):
            uid = filled["body"].get("metadata", {}).get("uid", "")
            filled["body"] = _with_times(filled["body"], self._seen.get(uid))
        return filled

    def _present_version(self, path: str) -> str:
        answer = self._ok({"method": "GET", "path": path})
        return str(answer["metadata"]["resourceVersion"])

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        return self.bindings.filled(value) if isinstance(value, str) else value


def _answer(response: http.client.HTTPResponse, text: str) -> _Answer:
    headers: Json = {}
    for name in _HEADERS:
        values = response.headers.get_all(name)
        if values:
            headers[name] = values if len(values) > 1 else values[0]
    return _Answer(response.status, response.getheader("Content-Type"), headers, text)


def _heads(recorded: Json, answer: _Answer) -> list[str]:
    found = []
    if answer.status != recorded["status"]:
        found.append(f"status: {recorded['status']} != {answer.status}")
    if answer.content_type != recorded["contentType"]:
        found.append(f"contentType: {recorded['contentType']!r} != {answer.content_type!r}")
    if answer.headers != recorded.get("headers", {}):
        found.append(f"headers: {recorded.get('headers', {})} != {answer.headers}")
    return found


def _with_times(body: Any, seen: Any) -> Any:
    """The body with the times of the object that was read before it was sent back."""
    if isinstance(body, dict):
        other = seen if isinstance(seen, dict) else {}
        return {key: _with_times(item, other.get(key)) for key, item in body.items()}
    if isinstance(body, list):
        others = seen if isinstance(seen, list) else []
        return [
            _with_times(item, others[index] if index < len(others) else None)
            for index, item in enumerate(body)
        ]
    if body == "<time>":
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return seen if isinstance(seen, str) else now
    return body
