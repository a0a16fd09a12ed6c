"""What is generated in the chart is up to date, and the generator says where it is not."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.charts.rendering import CHART

ROOT = CHART.parents[1]


@pytest.fixture
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", CHART.parent / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_is_up_to_date(generate: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().err
    committed = {str(path.relative_to(CHART)) for path in CHART.glob("templates/generated/*")}
    assert committed <= set(generate.FILES)


def test_a_stale_file_is_named_and_written(
    generate: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "templates/generated").mkdir(parents=True)
    for name in ("values.yaml", "values.schema.json", "README.md"):
        (tmp_path / name).write_text((CHART / name).read_text())
    values = tmp_path / "values.yaml"
    values.write_text(values.read_text().replace("workers: 16", "workers: 17"))
    monkeypatch.setattr(generate, "CHART", tmp_path)
    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "+| `controller.workers` | `17`" in said
    assert "run 'make generated'" in said
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_a_value_without_a_word_is_refused(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"a\.b has no comment"):
        list(generate.described("a:\n  # an aside\n  b: 1\n"))
    assert list(generate.described("## One |\n## two.\na: {b: 1}\n")) == [
        ("a", {"b": 1}, "One \\| two.")
    ]


def test_schema_and_values_name_the_same_keys() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    components = ("brain", "controller", "scheduler")
    open_ended = {".brain.config"}
    open_ended |= {f".{one}.{part}" for one in components for part in ("resources", "affinity")}
    open_ended |= {".cache.resources"}

    def compare(part: Any, given: Any, path: str) -> None:
        while reference := part.get("$ref"):
            part = schema["$defs"][reference.removeprefix("#/$defs/")]
        if "properties" not in part or path in open_ended:
            return
        assert part["additionalProperties"] is False, path
        assert set(part["properties"]) - {"global"} == set(given), path
        for key, value in given.items():
            compare(part["properties"][key], value, f"{path}.{key}")

    compare(schema, values, "")


def test_the_chart_has_the_version_of_the_distribution() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
