"""The ImageNet example: made-up pictures, a few steps without a GPU, and its job."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from penstock.crds.elasticjob import ElasticJob

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "imagenet"
ENVIRON = {key: value for key, value in os.environ.items() if "PENSTOCK" not in key}


def output_of(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / script), *options],
        capture_output=True,
        text=True,
        timeout=55,
        env={**ENVIRON, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imagenet")
    output_of("make_images.py", f"--data={folder}", "--classes=2", "--images=24")
    return folder


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("imagenet_example", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--uint8",)])
def test_it_learns(pictures: Path, more: tuple[str, ...]) -> None:
    options = [f"--data={pictures}", "--epochs=3", "--batch=8", "--pixels=48", *more]
    printed = output_of("train.py", *options, "--model=small", "--workers=1")
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_bytes_hold_what_floats_do(pictures: Path, example: ModuleType) -> None:
    floats = example.make_dataset(pictures / "val", 32, augment=False, as_bytes=False)
    numbers = example.make_dataset(pictures / "val", 32, augment=False, as_bytes=True)
    assert numbers[0][0].dtype == torch.uint8
    assert floats[0][1] == numbers[0][1]
    torch.testing.assert_close(floats[0][0], example.normalise(numbers[0][0]))


def test_its_network_is_resnet_50(example: ModuleType) -> None:
    model = example.make_model("resnet50", 1000)
    assert sum(one.numel() for one in model.parameters()) == 25_557_032  # as published
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 1000)


def test_it_does_not_know_of_penstock() -> None:
    imports = re.findall(
        r"^\s*(?:from|import) (\w+)", (EXAMPLE / "train.py").read_text(), re.MULTILINE
    )
    assert imports
    assert "penstock" not in imports


def test_its_job_is_valid_and_runs_the_script() -> None:
    job = ElasticJob.model_validate(yaml.safe_load((EXAMPLE / "job.yaml").read_text()))
    [container] = job.spec.replica_specs.worker.template["spec"]["containers"]
    script = "examples/imagenet/train.py"
    assert container["command"] == ["penstock", "run", "--", "python", script]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
