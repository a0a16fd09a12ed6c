"""What is loaded is no longer looked at, and cycles that are made later are found."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, weakref
import penstock.brain.planning
from penstock.base.garbage_collection import collect_seldom

class Node:
    pass

loaded = len(gc.get_objects())
collect_seldom()
looked_at = len(gc.get_objects())

def cycle():
    node = Node()
    node.own = node
    return weakref.ref(node)

first = cycle()
kept = []
while first() is not None and len(kept) < 200_000:
    kept.append([])
print(json.dumps([loaded, looked_at, len(kept)]))
"""


def test_what_is_loaded_is_left_alone_and_new_cycles_are_found() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    loaded, looked_at, until_found = json.loads(done.stdout)
    assert loaded > 20_000
    assert looked_at < 1_000
    assert until_found <= 50_000
