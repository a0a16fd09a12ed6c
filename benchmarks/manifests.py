"""Whether the manifests of a folder convert, with every field accounted for, and are accepted.

    python -m benchmarks.manifests FOLDER --json

Each document of each file is converted by itself as `penstock convert -f FILE` does it. What comes
out is held against the definitions (`penstock.crds.check`) and created on the embedded cluster's
API server (a dry run, all rules evaluated). Each leaf of a source is looked for: by its value in
the result, or by its path among the fields that were named. Nothing is timed, and nothing drawn.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import Goal, at_least, at_most, report
from penstock.base.yaml_text import documents
from penstock.convert.assembly import Conversion
from penstock.convert.convert import convert_all
from penstock.convert.source import Note, Outcome, RefusedError, Source, leaves
from penstock.crds.check import faults_in
from penstock.crds.elasticjob import ELASTICJOB
from penstock.crds.scale import SCALE
from penstock.crds.schema import crd
from penstock_cluster.testing import RunningCluster, api_server

MOST_REFUSED: Final = 3
_PATHS: Final = {"ElasticJob": "elasticjobs", "Scale": "scales"}
_ENDINGS: Final = (".yaml", ".yml", ".json")
Json = dict[str, Any]


def lost(document: Json, result: Json, notes: list[Note]) -> list[str]:
    """Leaves of a manifest that are neither in the result nor named."""
    there = [value for _, value in leaves(result)]
    named = [note.path for note in notes if note.outcome is not Outcome.TO_DO]
    return [
        ".".join(map(str, path))
        for path, value in leaves(document)
        if path not in (("apiVersion",), ("kind",))
        and not any(path[: len(one)] == one for one in named)
        and value not in there
    ]


def accepted(cluster: RunningCluster, result: Json) -> str:
    """What the API server has against an object; empty: nothing."""
    group = result["apiVersion"].partition("/")[0]
    namespace = result["metadata"].get("namespace", "default")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    path = cluster.path(f"{_PATHS[result['kind']]}.{group}", namespace)
    answer = cluster.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", result)
    return "" if answer.status < 300 else str(answer.json.get("message"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=os.environ.get("PENSTOCK_MANIFESTS"))
    parser.add_argument("--most-refused", type=int, default=MOST_REFUSED)
    parser.add_argument("--seed", type=int, default=0, help="of nothing: no choice is made")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.folder or not Path(options.folder).is_dir():
        parser.error("name a folder of manifests, here or in PENSTOCK_MANIFESTS")
    rows = []
    with api_server() as cluster:
        for resource in (ELASTICJOB, SCALE):
            cluster.apply(crd(resource))
        for file in sorted(Path(options.folder).rglob("*")):
            if file.suffix in _ENDINGS:
                rows += _rows(cluster, file, file.relative_to(options.folder))
    result = {"seed": options.seed, "load": round(os.getloadavg()[0], 1), "manifests": rows}
    return report(result, _goals(rows, options.most_refused), as_json=options.json)


def _rows(cluster: RunningCluster, file: Path, name: Path) -> list[Json]:
    found = [one for one in documents(file.read_text(encoding="utf-8")) if one is not None]
    rows = []
    for place, one in convert_all(found):
        row: Json = {"file": str(name)}
        if isinstance(one, RefusedError):
            rows.append({**row, "refused": str(one)})
            continue
        rows.append({**row, **_row(cluster, found, place, one)})
    return rows


def _row(cluster: RunningCluster, found: list[Any], place: int, one: Conversion) -> Json:
    by_label = {Source(doc).label: dict(doc) for doc in found if isinstance(doc, Mapping)}
    missing = []
    for label, document in by_label.items():
        notes = [note for note in one.notes if note.of == label]
        if label == one.source or notes:
            missing += lost(document, one.result, notes)
    count = dict.fromkeys(Outcome, 0)
    for note in one.notes:
        count[note.outcome] += 1
    return {
        "manifest": one.source,
        "result": one.result["kind"],
        "leaves": sum(1 for _ in leaves(found[place])),
        **{outcome.replace(" ", "_"): number for outcome, number in count.items()},
        "lost": missing,
        "faults": [str(fault) for fault in faults_in(one.result)],
        "server": accepted(cluster, one.result),
    }


def _goals(rows: list[Json], most_refused: int) -> list[Goal]:
    converted = [row for row in rows if "refused" not in row]
    refused = [row for row in rows if "refused" in row]
    return [
        at_least("manifests that were converted", 1, len(converted)),
        at_most("manifests that were refused, each with a reason", most_refused, len(refused)),
        at_most("leaves neither kept nor named", 0, sum(len(row["lost"]) for row in converted)),
        at_most("results that the definitions refuse", 0, _count(converted, "faults")),
        at_most("results that the API server refuses", 0, _count(converted, "server")),
    ]


def _count(rows: list[Json], field: str) -> int:
    return sum(1 for row in rows if row[field])


if __name__ == "__main__":
    raise SystemExit(main())
