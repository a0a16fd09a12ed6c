"""The benchmark of partitions, on few and small graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import partition
from benchmarks.goals import at_most
from benchmarks.partition_programs.train import cuts as cuts_of
from benchmarks.partitioning import cuts, found, kills, rates, session_kills
from penstock.data.partition.cut import Cut, Prices, cut_at
from penstock.data.partition.graph import Graph
from penstock.data.torchpartition.loader_steps import LoaderSteps
from penstock.data.torchpartition.observation.deferred import alive
from penstock.data.torchpartition.observation.recording import Recording


def test_the_cuts_are_compared_and_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "SIZES", (40,))
    monkeypatch.setattr(cuts, "GOAL_SIZE", 40)
    monkeypatch.setattr("sys.argv", ["partition", "--json", "--part", "cuts", "--graphs", "60"])
    assert partition.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cuts"]["wrong"] == 0
    assert printed["cuts"]["maximal_dearer"] > 0
    assert {"seconds_40", "seconds_40_hard"} < set(printed["cuts"])
    assert len(printed["goals"]) == 3


def test_a_cut_that_is_not_the_cheapest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_moves(graph: Graph, prices: Prices) -> Cut:
        return cut_at(graph, prices, [len(graph.stages) - 1] * len(graph.nodes))

    monkeypatch.setattr(cuts, "SIZES", ())
    monkeypatch.setattr(cuts, "cheapest", nothing_moves)
    figures, goals = cuts.run(1, 30)
    assert figures["wrong"] > 0
    assert not goals[0].ok


@pytest.mark.slow
def test_kills_of_workers_and_of_the_training_itself_change_no_loss() -> None:
    figures, goals = kills.run_process(3, 1)
    assert figures["kills"] == 3, figures
    missed = [goal for goal in goals if not goal.ok and "waited" not in goal.name]
    assert not missed, figures
    assert sum(figures["joined"].values()) > 3, "all workers joined, and one did so again"


@pytest.mark.slow
def test_kills_of_members_of_a_session_and_joins_change_no_loss() -> None:
    figures, goals = session_kills.run(2, 1)
    assert figures["killed"] == {"worker while Record": 1, "worker while Compare": 1}
    assert sum(figures["joined"].values()) == 2, figures
    assert [goal for goal in goals if not goal.ok] == [], figures


def test_a_state_in_which_nobody_was_killed_or_joined_is_a_goal_missed() -> None:
    figures: dict[str, Any] = {
        "killed": {"worker while Record": 2, "data-worker while Compare": 1},
        "joined": {"worker while Record": 1, "data-worker while Record": 1},
    }
    goals = session_kills.in_each(figures, session_kills.MODES, 9, 9)
    assert [goal.got for goal in goals] == [2, 1, 0, 2, 0, 0]
    assert [goal.ok for goal in goals] == [True, True, False, True, False, False]
    goals = session_kills.in_each(figures, session_kills.MODES, 3, 9)
    assert [goal.name for goal in goals if not goal.ok] == ["killed while Partitioned"]
    assert session_kills.in_each(figures, session_kills.MODES, 2, 9) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--kills", "4"], {"kills": (4, 7)}),
        (["--kills", "4", "--session"], {"session": (4, 7)}),
        (
            ["--kills", "4", "--part", "session", "--part", "kills"],
            {"session": (4, 7), "kills": (4, 7)},
        ),
    ],
)
def test_kills_of_a_session_have_a_command_with_their_goals(
    arguments: list[str],
    parts: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stand_in(name: str, *, lost: int) -> Any:
        def run(count: int, seed: int) -> Any:
            return (count, seed), [at_most(f"lost of {name}", 0, lost)]

        return run

    monkeypatch.setattr(kills, "run", stand_in("kills", lost=0))
    monkeypatch.setattr(session_kills, "run", stand_in("session", lost=1))
    monkeypatch.setattr("sys.argv", ["partition", "--json", "--seed", "7", *arguments])
    assert partition.main() == ("session" in parts), (
        "a goal that is missed is told by the exit code"
    )
    printed = json.loads(capsys.readouterr().out)
    assert {name: tuple(printed[name]) for name in printed.keys() & {"kills", "session"}} == parts
    assert [goal["name"] for goal in printed["goals"]] == [f"lost of {name}" for name in parts]


@pytest.mark.parametrize("arguments", [["--session"], ["--part", "kills"], ["--kills", "-1"]])
def test_kills_without_a_number_of_them_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["partition", *arguments])
    with pytest.raises(SystemExit) as ended:
        partition.main()
    assert ended.value.code == 2
    assert "--kills: " in capsys.readouterr().err


def test_a_loss_that_two_workers_have_otherwise_is_found(tmp_path: Path) -> None:
    for rank, loss in enumerate((0.5, 0.25)):
        line = json.dumps({"step": 3, "losses": {"0": 1.0, "1": loss}})
        (tmp_path / f"steps-{rank}.jsonl").write_text(f"{line}\n")
    with pytest.raises(ValueError, match="slot 1 of step 3"):
        session_kills.losses_in(tmp_path)


def run_of(way: str, training: float, worker: float, seconds: float) -> dict[str, Any]:
    """What a program says of itself: 6 epochs of 10 steps."""
    epoch = [10 * one / 1000 for one in (seconds, training, worker)]
    return {
        "name": "clicks",
        "steps": 60,
        "moved": 30 if way == "auto" else 0,
        "losses": "the same",
        "epochs": [[9.0, 9.0, 9.0]] * rates.SETTLED + [epoch] * (rates.EPOCHS - rates.SETTLED),
        "recorded": [0.5, 1.0] if way == "auto" else [0.0, 0.0],
        "declared_seconds": 0.0,
    }


def test_a_gain_stands_beside_the_published_one_and_what_two_cores_have_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12 ms of training, half of which can move, and 2 ms of a worker: 7 ms each are the best."""
    made = {"never": run_of("never", 12, 2, 14), "auto": run_of("auto", 6.5, 9, 10)}
    monkeypatch.setattr(rates, "train", lambda names, options, *rest: [made[options[1]]])
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 9.0, 9.0))
    [row], goals = rates.run(["clicks"], 10, 2)
    assert (row["published_of"], row["published"]) == ("WDL", 1.4)
    assert row["samples_per_second"] == {"dataset_boundary": 571.4, "partition": 800.0}
    assert (row["gain"], row["cpu_gain"], row["limit"]) == (1.4, 1.333, 1.714)
    assert row["cpu_milliseconds"]["train_part"] == 6.0
    assert row["cpu_share_of_limit"] == 0.778
    assert [goal.ok for goal in goals] == [True, False, True]
    assert "by seconds of the processor" in goals[0].name, "the machine is busy"
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 9.0, 9.0))
    _, goals = rates.run(["clicks"], 10, 1)
    assert goals[0].got == 1.4
    made["auto"]["losses"] = "others"
    _, goals = rates.run(["clicks"], 10, 1)
    assert not goals[-1].ok


def test_of_the_labelled_seconds_those_that_move_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(label: str, seconds: float, *, moves: bool) -> dict[str, Any]:
        return {"label": label, "moves": moves, "seconds": seconds, "why": "" if moves else "dear"}

    calls = [call("Tensor.mul", 3.0, moves=True), call("bucketize", 1.0, moves=False)]
    calls.append(call("Linear", 9.0, moves=False))  # is trained, and labelled by nobody
    program: dict[str, Any] = {"name": "clicks", "calls": calls}
    program["bytes"] = {"raw": 90, "maximal": 50, "chosen": 20}
    program["cuts"] = [
        {"bytes": 50, "seconds": 4.0, "byte_seconds": 0.0},
        {"bytes": 20, "seconds": 3.0, "byte_seconds": 2e-9},
    ]
    monkeypatch.setattr(found, "train", lambda *given: [program])
    monkeypatch.setattr(found, "_microseconds", lambda *, module: 12.0)
    monkeypatch.setattr(found, "_in_a_matched_call", lambda: {"torch_module": 2.5})
    figures, goals = found.run(["clicks"], 10)
    assert figures["workloads"] == [
        {
            "workload": "clicks",
            "share_found": 0.75,
            "stays": ["bucketize: dear"],
            "bytes": {"raw": 90, "maximal": 50, "chosen": 20, "sent": 110},
            "cuts": [
                {"bytes": 50, "share": 1.0, "byte_nanoseconds": 0.0},
                {"bytes": 20, "share": 0.75, "byte_nanoseconds": 2.0},
            ],
        }
    ]
    assert figures["match_microseconds"] == {"function": 12.0, "module": 12.0, "torch_module": 2.5}
    assert [goal.ok for goal in goals] == [True, False, False, True, False, True]


@pytest.mark.parametrize("module", [False, True])
def test_a_matched_call_costs_time_and_so_do_its_parts(
    module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "STEPS", 3)
    each = found._microseconds(module=module)
    assert each is None or each > 0
    assert alive() == 0
    assert min(found._in_a_matched_call().values()) > 0
    assert alive() == 0, "what stood for a result is gone"


def test_cuts_send_less_and_move_less_the_more_a_byte_costs() -> None:
    made = cuts_of(SimpleNamespace(recording=sorted_rows()))
    assert [(one["bytes"], round(one["seconds"], 6)) for one in made] == [
        (128, 0.0031),  # rows and where they were
        (64, 0.003),
        (0, 0.0),
    ]
    prices = [one["byte_seconds"] for one in made]
    assert prices[0] == 0.0
    assert prices[1] == pytest.approx(0.0001 / 64, rel=0.25)
    assert prices[2] == pytest.approx(0.003 / 64, rel=0.25)


def sorted_rows() -> Recording:
    """Steps with calls that make few numbers of many, and one that makes two values of those."""
    table, loader = torch.nn.Embedding(16, 4), LoaderSteps("rows")
    loader.begin_epoch()
    for number in range(6):
        [raw] = loader.deliver([torch.arange(4096).reshape(8, 512) + number])
        rows, places = ((raw % 97).sum(1) % 16).sort()
        table(rows)[places].sum().backward()
        loader.end_step()
    assert loader.plan is not None, loader.state.proof.why
    calls = [
        replace(one, seconds=0.0001 if "sort" in one.name else 0.001)
        for one in loader.plan.recording.calls
    ]
    return replace(loader.plan.recording, calls=tuple(calls))
