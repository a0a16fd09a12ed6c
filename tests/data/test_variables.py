"""Variables of the environment: what each may be, and what happens where it is something else."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base.enums import Partition
from penstock.crds import environment as names
from penstock.data import variables
from penstock.data.transport.seal import wants_hidden
from penstock.data.variables import ALL, Variable, VariableError, check

PENSTOCK = Path(sys.executable).with_name("penstock")
BAD = [
    (names.PARTITION, "perhaps"),
    (names.PARTITION_SHARE, "7"),
    (names.PARTITION_SHARE, "nan"),
    (names.PARTITION_SHARE, "half"),
    (names.DATA_SHARE, "-0.1"),
    (names.WEIGHTS_BYTES, "lots"),
    (names.WEIGHTS_BYTES, "0"),
    (names.WEIGHTS_BYTES, "-1Gi"),
    (names.DATA_STAGE, "2"),
    (names.DATA_STAGE, "one"),
    (names.DATA_PROCESSES, "65"),
    (names.DATA_PROCESSES, "9" * 5000),
    (names.LINK_CODING, "off"),
    (names.PINNED_WRITES, "2"),
    (names.ENCRYPT_FRAMES, "please"),
    (names.LATE_COMPILER, "never"),
]


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (variables.PARTITION, "", Partition.DECLARED),
        (variables.PARTITION, "never", Partition.NEVER),
        (variables.PARTITION, "Auto", Partition.AUTO),
        (variables.PARTITION_SHARE, "", None),
        (variables.PARTITION_SHARE, "0", 0.0),
        (variables.PARTITION_SHARE, "1", 1.0),
        (variables.DATA_SHARE, "0.3", 0.3),
        (variables.WEIGHTS_BYTES, "", 16 << 30),
        (variables.WEIGHTS_BYTES, "1Ki", 1024),
        (variables.DATA_STAGE, "", None),
        (variables.DATA_STAGE, "1", 1),
        (variables.DATA_PROCESSES, "64", 64),
        (variables.LINK_CODING, "", True),
        (variables.LINK_CODING, "0", False),
        (variables.PINNED_WRITES, "1", True),
        (variables.ENCRYPT_FRAMES, "Yes", True),
    ],
)
def test_what_each_says(variable: Variable[Any], text: str, value: Any) -> None:
    assert variable.given({variable.name: text}) == value
    assert variable.now({variable.name: text}) == value
    assert variable.given({}) == variable.absent


@pytest.mark.parametrize(("name", "text"), BAD)
def test_what_cannot_be_meant_is_refused_with_name_value_and_rule(name: str, text: str) -> None:
    with pytest.raises(VariableError) as caught:
        check({name: text})
    said = str(caught.value)
    assert said.startswith(f"{name}: {text!r:.100}; must be ")
    assert "left out for" in said or "left out to" in said
    assert "\n" not in said


def test_each_is_refused() -> None:
    assert {name for name, _ in BAD} == {one.name for one in ALL}


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_training_goes_on_with_one_line(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    variables._say.cache_clear()
    variable: Variable[Any] = next(one for one in ALL if one.name == name)
    with caplog.at_level(logging.WARNING):
        values = [variable.now({name: text}) for _ in range(3)]
    hides = name == names.ENCRYPT_FRAMES
    assert values == [True if hides else variable.absent] * 3
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith(f"{name}: {text!r:.100}; must be ")
    assert line.endswith("taken as 1" if hides else "taken as if it were left out")


def test_what_was_to_be_hidden_is_never_sent_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENCRYPT_FRAMES, "on, please")
    assert wants_hidden()


@pytest.mark.parametrize(
    "command",
    [["run", "--partition", "auto"], ["partition"], ["data-worker"]],
    ids=lambda one: one[0],
)
def test_a_command_says_so_and_starts_nothing(command: list[str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = ["--", "touch", str(begun)] if command != ["data-worker"] else []
    done = subprocess.run(
        [PENSTOCK, *command, *program],
        env={**os.environ, names.PARTITION_SHARE: "7"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    said = " ".join(done.stderr.replace("\u2502", " ").split())
    assert "PENSTOCK_PARTITION_SHARE: '7'; must be a number from 0 to 1" in said
    assert not begun.exists()


def test_an_option_stands_for_its_variable(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    for options, code in (([], 2), (["--partition", "never"], 0)):
        done = subprocess.run(
            [PENSTOCK, "run", *options, "--", "touch", str(begun)],
            env={**os.environ, names.PARTITION: "perhaps"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert begun.exists() == (code == 0)
