"""The recorded sessions of kubectl: what was typed, sent and printed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from cluster.tests.golden.recordings import DATA
from cluster.tests.kubectl.kubectl import Kubectl, Ran

INPUT = DATA / "kubectl" / "input"
NAMESPACE = "g-kubectl"
#: In the order in which they were recorded: each goes on from what the one before left.
ORDER = (
    "apply",
    "apply-server-side",
    "get",
    "get-wide",
    "get-watch",
    "describe",
    "scale",
    "patch",
    "wait",
    "explain",
    "label-annotate",
    "invalid",
    "diff-dry-run",
    "api-resources",
    "auth",
    "delete",
)
#: These began with an empty discovery cache.
FRESH_CACHE = ("apply", "get", "explain")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LOG_LINE = re.compile(r"^[IWE]\d{4} \S+\s+\d+ \S+\] (.*)$")
_ROUND_TRIP = re.compile(r"^(GET|PUT|POST|PATCH|DELETE) (\S+) (\d+ .*?|) ?in \d+ milliseconds")
_NORMAL = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "<time>"),
    (re.compile(r"%3D" + _UUID), "%3D<uid>"),
    (re.compile(_UUID), "<uid>"),
    (re.compile(r"timeoutSeconds=\d+"), "timeoutSeconds=<random>"),
    (re.compile(r"(Normal +Started +)\S+"), r"\1<age>"),
    (re.compile(r"(\s)\d+[smhd](\s+app=demo)"), r"\1<age>\2"),
    (re.compile(r'(resourceVersion: "|Resource Version: +|resourceVersion=)\d+'), r"\1<rv>"),
    (re.compile(r"\?hash=[0-9A-F]+"), "?hash=<hash>"),
    (re.compile(r"(?m)^(.*\s)(\d+[smhd](\d+[smhd])?)(\s*)$"), r"\1<age>\4"),
)


@dataclass(frozen=True)
class Command:
    """One recorded command: its arguments, requests, exit code and what it printed."""

    arguments: tuple[str, ...]
    requests: tuple[str, ...]
    code: int
    out: tuple[str, ...]
    err: tuple[str, ...]


def load(name: str) -> list[Command]:
    """The commands of a session, in order."""
    text = (DATA / "kubectl" / f"{name}.txt").read_text(encoding="utf-8")
    return [_parsed(part) for part in text.split("$ kubectl -v=6 ")[1:]]


def _parsed(text: str) -> Command:
    lines = text.rstrip().splitlines()
    found: dict[str, list[str]] = {}
    code = -1
    section: list[str] = []
    for line in lines[1:]:
        if line.startswith("  exit code "):
            code = int(line.removeprefix("  exit code "))
        elif line.startswith("    "):
            section.append(line[4:])
        elif line.strip():
            section = found.setdefault(line.strip(" :"), [])
    arguments = tuple(lines[0].split(" "))
    return Command(
        arguments,
        tuple(map(_normal, found.get("requests", ()))),
        code,
        tuple(found.get("stdout", ())),
        tuple(found.get("stderr", ())),
    )


def play(kubectl: Kubectl, command: Command, inputs: Path) -> Command:
    """Run a recorded command; what came of it in the words of the recordings."""
    arguments = [part.replace("input/", f"{inputs}/") for part in command.arguments]
    ran = kubectl.run(*arguments, verbose=True)
    requests, rest = _read_log(ran, kubectl.cluster.url)
    return Command(
        command.arguments,
        tuple(requests),
        ran.code,
        _printed(ran.out, kubectl, inputs),
        _printed("\n".join(rest), kubectl, inputs),
    )


def _read_log(ran: Ran, url: str) -> tuple[list[str], list[str]]:
    """The requests that ``-v=6`` logs, and the lines of stderr that are not log lines."""
    requests: list[str] = []
    rest: list[str] = []
    in_dump = False
    for line in ran.err.splitlines():
        if re.match(r"^[IWEF]\d{4} .*\[\{$", line):
            in_dump = True
        if in_dump:
            in_dump = line != "}]"
            continue
        logged = _LOG_LINE.match(line)
        if logged is None:
            rest.append(line)
            continue
        text = logged[1].replace(url, "")
        if sent := _ROUND_TRIP.match(text):
            requests.append(_normal(f"{sent[1]} {sent[2]} -> {sent[3]}"))
    return requests, rest


def _printed(text: str, kubectl: Kubectl, inputs: Path) -> tuple[str, ...]:
    text = text.replace(str(inputs), "input").replace(kubectl.cluster.url, "")
    return tuple(_normal(line) for line in text.rstrip().splitlines())


_SELECTOR = re.compile(r"(fieldSelector=)([^& ]+)")


def _in_order(selector: re.Match[str]) -> str:
    """A field selector with its parts sorted: kubectl writes them in any order."""
    return selector[1] + "%2C".join(sorted(selector[2].split("%2C")))


def _normal(text: str) -> str:
    text = re.sub(r"(fieldSelector=)([^&\s]*)", _in_order, text)
    for pattern, shown in _NORMAL:
        text = pattern.sub(shown, text)
    # Go writes the terms of a selector in the order of a map: another one in every run.
    return _SELECTOR.sub(lambda found: found[1] + "%2C".join(sorted(found[2].split("%2C"))), text)


def typed(command: Command) -> str:
    return "kubectl " + shlex.join(command.arguments)
