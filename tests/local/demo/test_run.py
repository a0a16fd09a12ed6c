"""What a person may ask of the demo, and what they are told if it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.local.control_plane.home import Home
from penstock.local.demo.run import DemoOptions, on_gpu, read_job, run_demo
from penstock.local.demo.scenario import DemoError

JOB = "kind: ElasticJob\nmetadata: {name: mine}\n"


@pytest.mark.parametrize(
    ("job", "images", "told"),
    [
        ("none.yaml", None, "no job at .*none.yaml.* name one with --job"),
        ("job.yaml", "none.yaml", "no job at .*none.yaml.* leave it out with --no-images"),
    ],
)
def test_a_manifest_that_is_not_there_is_named_with_what_to_do(
    tmp_path: Path, job: str, images: str | None, told: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    options = DemoOptions(
        home=Home(tmp_path / "home"),
        job=tmp_path / job,
        images=None if images is None else tmp_path / images,
        timeout_seconds=1.0,
        kill_a_worker=False,
        json_output=True,
        keep=False,
    )
    with pytest.raises(DemoError, match=told):
        run_demo(options)
    assert not (tmp_path / "home").exists(), "nothing was started"


def test_on_a_machine_with_a_gpu_the_images_are_for_one() -> None:
    manifest = read_job(Path("examples/images/job_far.yaml"))
    before = str(manifest)
    template = on_gpu(manifest)["spec"]["replicaSpecs"]["worker"]["template"]
    [container] = template["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert str(manifest) == before
