"""The committed YAML is what the models generate, and ``penstock crds`` keeps it so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.crds.commands import Kind
from penstock.crds.generated import drift
from penstock.crds.manifests import MANIFESTS, OPTIONAL_MANIFESTS, SOURCE_FOLDER, Manifest

ALL = (*MANIFESTS, *OPTIONAL_MANIFESTS)
PENSTOCK = Path(sys.executable).with_name("penstock")


def penstock_crds(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, "crds", *arguments], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("manifest", ALL, ids=lambda manifest: manifest.name)
def test_the_committed_file_is_up_to_date(manifest: Manifest) -> None:
    file = SOURCE_FOLDER / manifest.file_name
    assert drift(file, manifest.render()) == "", "run make generated"


@pytest.mark.parametrize("manifest", ALL, ids=lambda manifest: manifest.name)
def test_the_text_holds_the_objects_as_they_are(manifest: Manifest) -> None:
    assert list(yaml.safe_load_all(manifest.render())) == manifest.objects()


def test_the_command_knows_every_manifest() -> None:
    assert [kind.value for kind in Kind] == [manifest.name for manifest in ALL]


def test_without_options_everything_is_printed_as_one_stream() -> None:
    printed = list(yaml.safe_load_all(penstock_crds().stdout))
    assert [document["kind"] for document in printed] == [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "ClusterRole",
        *["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] * 3,
    ]


def test_one_kind_is_printed_alone() -> None:
    (printed,) = yaml.safe_load_all(penstock_crds("--kind", "elasticjob").stdout)
    assert printed["metadata"]["name"] == "elasticjobs.penstock.dev"


def test_what_is_optional_is_printed_when_it_is_asked_for() -> None:
    printed = list(yaml.safe_load_all(penstock_crds("--kind", "job-policy").stdout))
    assert [document["metadata"]["name"] for document in printed] == ["penstock-job-creators"] * 2
    assert "penstock-job-creators" not in penstock_crds().stdout


def test_what_is_optional_is_written_apart(tmp_path: Path) -> None:
    assert penstock_crds("--write", "--folder", str(tmp_path)).returncode == 0
    files = {path.name for path in tmp_path.glob("*.yaml")}
    assert files == {manifest.file_name for manifest in MANIFESTS}
    assert (tmp_path / "optional" / "job-policy.yaml").is_file()
    assert penstock_crds("--check", "--folder", str(tmp_path)).returncode == 0


def test_check_says_nothing_when_all_is_well() -> None:
    result = penstock_crds("--check")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_check_shows_what_drifted_and_how_to_mend_it(tmp_path: Path) -> None:
    assert penstock_crds("--write", "--folder", str(tmp_path)).returncode == 0
    scale = tmp_path / "scale.crd.yaml"
    scale.write_text(scale.read_text().replace("maximum: 4096", "maximum: 4095", 1))
    result = penstock_crds("--check", "--folder", str(tmp_path))
    assert result.returncode == 1
    assert "-                        maximum: 4095" in result.stderr
    assert f"out of date: {scale}; run 'penstock crds --write'" in result.stderr


def test_check_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = penstock_crds("--check", "--folder", str(tmp_path))
    assert result.returncode == 1
    assert f"{tmp_path}/elasticjob.crd.yaml: No such file or directory" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_and_write_exclude_each_other() -> None:
    result = penstock_crds("--check", "--write")
    assert result.returncode == 2
    assert "--check and --write exclude each other" in result.stderr
