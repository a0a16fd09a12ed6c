"""Whether the jobs of a folder's manifests run once they are converted, with stand-in programs.

    python -m benchmarks.converted FOLDER --json
    python -m benchmarks.converted FOLDER --only mnist --json

Each job of DLRover in a file is converted as `penstock convert -f FILE` does it, and applied to an
embedded cluster. In the place of its image its containers begin in a folder that has a program
under each name which their commands call: scripts, modules and shell scripts
(`converted_programs`). Under a launcher they sum over their world, and tell which ranks met; where
`TF_CONFIG` tells of others, the chief meets each of them. Commands, numbers of pods and processes,
and what each pod asks for stay what they were; nodes say that they have enough of it, claims of
volumes are made, and the namespace is the default one. Nothing is timed: goals are that each job
ends well, and that all who were to be there have met.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.elastic.cluster import Cluster, api_server, outcome
from benchmarks.elastic.processes import ROOT
from benchmarks.goals import Goal, at_least, report
from penstock.base.yaml_text import documents
from penstock.convert.convert import convert_all
from penstock.convert.source import RefusedError

Json = dict[str, Any]

PROGRAMS: Final = ROOT / "benchmarks" / "converted_programs"
NODES: Final = [
    {
        "name": "node",
        "count": 2,
        "cpu": "64",
        "memory": "256Gi",
        "accelerators": {"nvidia.com/gpu": 8},
    }
]
GROUP: Final = "elastic.iml.github.io/"
JOB_SECONDS: Final = 240.0
_FOLDER: Final = re.compile(r"\bcd\s+(?:\./)?([\w./-]+)")
_SCRIPT: Final = re.compile(r"(?<![\w/.-])(?:\./)?((?:[\w-]+/)*[\w-]+\.(?:py|sh))\b")
_MODULE: Final = re.compile(r"-m\s+([\w.]+)")
_STAND_IN: Final = """\
import os, runpy, sys
name, told = ("tf_config", {met!r}) if "TF_CONFIG" in os.environ else ("all_reduce", {told!r})
sys.argv = [name, told]
runpy.run_path(os.path.join({programs!r}, name + ".py"), run_name="__main__")
"""


def programs_of(command: str) -> set[str]:
    """Files that a command line calls, relative to the folder in which it begins."""
    inside = _FOLDER.search(command)
    base = Path(inside[1]) if inside and not inside[1].startswith("/") else Path()
    called = set(_SCRIPT.findall(command))
    called |= {f"{name.replace('.', '/')}.py" for name in _MODULE.findall(command)}
    return {str(base / one) for one in called}


def stand_ins(result: Json, image: Path, told: Path) -> None:
    """Put programs into the folder that stands for a job's images, and begin in it."""
    stand_in = _STAND_IN.format(met=str(told / "met"), told=str(told), programs=str(PROGRAMS))
    for container in _containers(result):
        container["workingDir"] = str(image)
        command = " ".join([*container.get("command", []), *container.get("args", [])])
        for name in programs_of(command):
            path = image / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stand_in if path.suffix == ".py" else "exit 0\n")
            for folder in path.relative_to(image).parents:
                if path.suffix == ".py" and str(folder) != ".":
                    (image / folder / "__init__.py").touch()


def claims_of(result: Json) -> set[str]:
    """Names of the claims of volumes that a job's pods have."""
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for role in result["spec"]["replicaSpecs"].values()
        for volume in role["template"]["spec"].get("volumes", [])
        if "persistentVolumeClaim" in volume
    }


def run(cluster: Cluster, folder: Path, result: Json) -> Json:
    """One job: how it ended, and who has met."""
    image, told = folder / "image", folder / "told"
    for path in (image, told):
        path.mkdir(parents=True)
    name = f"{result['metadata']['name']}-{folder.name}"  # several files have one name
    result["metadata"] = {"name": name}
    stand_ins(result, image, told)
    for claim in claims_of(result):
        cluster.claim(claim)
    cluster.apply(result)
    deadline = time.monotonic() + JOB_SECONDS
    while not (ended := outcome(cluster.job(name))) and time.monotonic() < deadline:
        time.sleep(0.5)
    row = {"job": name, "ended": ended, **met(told)}
    if ended != "Succeeded":
        row["conditions"] = [
            f"{one['type']} {one.get('reason')}: {one.get('message')}"
            for one in cluster.job(name).get("status", {}).get("conditions", [])
        ]
    cluster.delete_job(name)
    return row


def met(told: Path) -> Json:
    """What the stand-ins have told: how many were to meet, and how many have."""
    if (told / "met").exists():
        others = json.loads((told / "met").read_text())
        return {"there": len(others), "met": sum(name == who for name, who in others.items())}
    ranks = [json.loads(path.read_text()) for path in told.glob("rank-*")]
    world = max((rank["world"] for rank in ranks), default=0)
    whole = world * (world + 1) // 2
    return {"there": world, "met": sum(rank["sum"] == whole for rank in ranks)}


def _containers(result: Json) -> Iterator[Json]:
    for role in result["spec"]["replicaSpecs"].values():
        yield from role["template"]["spec"]["containers"]


def jobs_of(folder: Path, only: str) -> Iterator[tuple[str, Json | str]]:
    """Files with a job of DLRover, each with what it is converted to, or why it is not."""
    for file in sorted(folder.rglob("*.y*ml")):
        found = [one for one in documents(file.read_text(encoding="utf-8")) if one is not None]
        if only not in file.name:
            continue
        for place, one in convert_all(found):
            source = found[place]
            if source.get("kind") != "ElasticJob" or not source["apiVersion"].startswith(GROUP):
                continue
            yield file.name, str(one) if isinstance(one, RefusedError) else one.result


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--seed", type=int, default=0, help="of nothing: no choice is made")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder}: there is no such folder; name one of manifests")
    rows: list[Json] = []
    with (
        tempfile.TemporaryDirectory(prefix="converted-", ignore_cleanup_errors=True) as name,
        api_server(Path(name) / "home", NODES) as cluster,
    ):
        for number, (file, result) in enumerate(jobs_of(options.folder, options.only)):
            if isinstance(result, str):
                rows.append({"file": file, "refused": result})
                continue
            rows.append({"file": file, **run(cluster, Path(name) / str(number), result)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    ended = sum(row.get("ended") == "Succeeded" for row in rows)
    whole = sum(0 < row.get("there", 0) == row["met"] for row in rows if "met" in row)
    goals: list[Goal] = [
        at_least("jobs that ended well", max(1, len(rows)), ended),
        at_least("jobs whose pods have all met", max(1, len(rows)), whole),
    ]
    load = round(os.getloadavg()[0], 1)
    return report({"seed": options.seed, "load": load, "jobs": rows}, goals, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
