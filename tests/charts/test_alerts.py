"""The alerts of the PrometheusRule fire when they should, by promtool, on metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from penstock.api.request_metrics import RequestMetrics
from penstock.brain.control.metrics import BrainMetrics
from penstock.controller.metrics import Metrics as ControllerMetrics
from penstock.scheduler.model.cluster_state import ClusterState
from penstock.scheduler.service.metrics import Metrics as SchedulerMetrics

PROMTOOL = shutil.which("promtool")
ALERTS = Path(__file__).parents[2] / "charts" / "penstock" / "alerts"
TESTS = Path(__file__).with_name("alerts.test.yaml")

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run(
        [PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, timeout=50
    )


def test_every_alert_fires_and_is_silent_when_it_should(tmp_path: Path) -> None:
    shutil.copytree(ALERTS, tmp_path, dirs_exist_ok=True)
    shutil.copy(TESTS, tmp_path)
    done = promtool("test", "rules", TESTS.name, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_is_without_its_test() -> None:
    names = {
        rule["alert"]
        for path in ALERTS.iterdir()
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    }
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    expected = [one for test in tests for one in test["alert_rule_test"]]
    assert {one["alertname"] for one in expected if one.get("exp_alerts")} == names
    assert {one["alertname"] for one in expected if not one.get("exp_alerts")} == names


def test_rules_are_sound(tmp_path: Path) -> None:
    for path in ALERTS.iterdir():
        done = promtool("check", "rules", "--lint=all", "--lint-fatal", path.name, folder=ALERTS)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_rule_that_says_something_else_fails(tmp_path: Path) -> None:
    shutil.copytree(ALERTS, tmp_path, dirs_exist_ok=True)
    shutil.copy(TESTS, tmp_path)
    path = tmp_path / "controller.yaml"
    path.write_text(path.read_text().replace("> 100", "> 1000"))
    assert promtool("test", "rules", TESTS.name, folder=tmp_path).returncode != 0


def test_alerts_use_metrics_that_the_components_have() -> None:
    scheduler, api = SchedulerMetrics(), CollectorRegistry()
    scheduler.show(ClusterState())
    # An app that nobody calls.
    RequestMetrics(lambda *_: None, api)  # type: ignore[arg-type]
    registries = (ControllerMetrics().registry, BrainMetrics().registry, scheduler.registry, api)
    shown = "".join(generate_latest(one).decode() for one in registries)
    for path in ALERTS.iterdir():
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                for name in re.findall(r"penstock_\w+", rule["expr"]):
                    family = re.sub(r"_(bucket|sum|count)$", "", name)
                    assert f"# HELP {family} " in shown, (rule["alert"], name)
