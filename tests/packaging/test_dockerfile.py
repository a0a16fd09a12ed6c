"""The Dockerfile, read: no image is built here, so what can be said of it is checked."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environments import ROOT, needed

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments, with comments gone and continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), " ".join(rest.split())) for name, rest in found]


def stages() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """By name: what each stage builds on, and its instructions."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    name = ""
    for instruction, rest in instructions():
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            assert name, f"FROM {rest} has no name"
            found[name] = (base, [])
        elif name:
            found[name][1].append((instruction, rest))
    return found


def chain(name: str) -> list[tuple[str, str]]:
    """The instructions of a stage and of those that it builds on."""
    all_stages = stages()
    base, own = all_stages[name]
    return [*(chain(base) if base in all_stages else []), *own]


def test_the_targets_run_as_nobody_and_find_penstock() -> None:
    for target in ("control", "runtime", "examples"):
        steps = chain(target)
        [user] = [rest for name, rest in steps if name == "USER"]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
        assert any("/opt/penstock/bin" in rest for name, rest in steps if name == "ENV")
        copied, *own = [rest for name, rest in steps if name == "COPY"]
        assert copied == f"--from={target}-environment /opt/penstock /opt/penstock"
        assert own == (["examples examples"] if target == "examples" else [])
        assert not [rest for name, rest in steps if name == "RUN"]
        base, _ = stages()["base"]
        assert base == "${PYTHON_IMAGE}"


def test_the_user_is_that_of_the_chart() -> None:
    pod = (ROOT / "charts/penstock/templates/_pod.tpl").read_text()
    [user] = [rest for name, rest in chain("control") if name == "USER"]
    assert f"runAsUser: {user.partition(':')[0]}" in pod


IMAGES = {
    "control": ["controller", "brain", "scheduler"],
    "runtime": ["runtime", "gpu"],
    "examples": ["runtime", "gpu", "examples"],
}


def test_every_installation_is_of_files_with_known_hashes() -> None:
    """Whatever an index answers with must be a file that a lock file lists; ours is built here."""
    runs = [rest for name, rest in instructions() if name == "RUN" and " install " in rest]
    installations = [
        step for run in runs for step in run.split("&&") if re.search(r"\bpip\b.* install ", step)
    ]
    listed = []
    for step in installations:
        assert " --no-deps " in step
        if " --no-index " in step:
            assert step.split()[-1] == "/wheels/*.whl"
            continue
        assert " --require-hashes " in step
        [path] = re.findall(r" --requirement (\S+)", step)
        listed.append(path)
    assert sorted(listed) == sorted(f"requirements/{name}.lock" for name in ("build", *IMAGES))
    assert len(installations) == len(listed) + len(IMAGES)
    copied = [rest for name, rest in stages()["build"][1] if name == "COPY"]
    assert copied[0].split()[0] == "requirements"


def locked(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """What a lock file with hashes lists."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        pin, *hashes = line.split(" --hash=")
        requirement = Requirement(pin)
        if requirement.marker is None or requirement.marker.evaluate():
            found[canonicalize_name(requirement.name)] = requirement, hashes
    return found


@pytest.mark.parametrize("name", ["build", *IMAGES])
def test_every_pin_has_hashes_and_the_version_of_the_lock_file(name: str) -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = {line.partition(";")[0].strip() for line in lines}
    assert locked(name)
    for requirement, hashes in locked(name).values():
        assert f"{requirement.name}{requirement.specifier}" in pins
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes)


@pytest.mark.parametrize("image", IMAGES)
def test_each_image_is_given_all_that_its_roles_need(image: str) -> None:
    """By the metadata of what is installed here; a system's own parts of PyTorch come on top."""
    assert needed(IMAGES[image]) <= locked(image).keys()
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    extras = " ".join(f"--extra {extra}" for extra in IMAGES[image])
    assert re.search(
        rf"\$\(COMPILE_IMAGE\) {extras}\s+pyproject\.toml --output-file requirements/{image}\.lock",
        makefile,
    )


def test_each_image_says_what_is_in_it() -> None:
    for target in IMAGES:
        [(_, run)] = [one for one in stages()[f"{target}-environment"][1] if one[0] == "RUN"]
        steps = [step.split() for step in run.split("&&")]
        made = "/opt/penstock/bin/python -m penstock.base.bill_of_materials"
        assert [*made.split(), ">", "/opt/penstock/sbom.cdx.json"] in steps


def test_what_is_copied_is_there_and_let_through() -> None:
    let_through = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    rest = [rest for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    sources = {source for one in rest for source in one.split()[:-1]}
    assert sources == let_through
    for source in sources:
        assert (ROOT / source).exists(), source
    rooms = {path.parents[2].name for path in ROOT.glob("*/penstock/*/py.typed")}
    assert rooms
    assert rooms <= sources
    assert "cluster" not in sources  # a distribution of its own, and in no image


def test_the_base_image_has_the_interpreter_of_the_lock_file() -> None:
    [default] = [rest for name, rest in instructions() if rest.startswith("PYTHON_IMAGE=")]
    version = re.search(r"python:(\d+\.\d+)-", default)
    assert version is not None
    assert f"--python-version {version[1]}" in (ROOT / "Makefile").read_text()
