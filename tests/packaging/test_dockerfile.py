"""The Dockerfile, read: no image is built here, so what can be said of it is checked."""

from __future__ import annotations

import re
import tomllib

from tests.packaging.environments import ROOT

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


def test_every_installation_is_held_to_the_lock_file() -> None:
    runs = [rest for name, rest in instructions() if name == "RUN" and " install " in rest]
    assert len(runs) == 4
    for run in runs:
        assert "--constraint requirements.lock" in run
    copied = [rest for name, rest in stages()["build"][1] if name == "COPY"]
    assert "requirements.lock" in copied[0].split()


def test_each_target_has_the_extras_of_its_roles() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for target, expected in (
        ("control", ["controller", "brain", "scheduler"]),
        ("runtime", ["runtime", "gpu"]),
        ("examples", ["runtime", "gpu", "examples"]),
    ):
        [(_, run)] = [one for one in stages()[f"{target}-environment"][1] if one[0] == "RUN"]
        [listed] = re.findall(r'"\$1\[([a-z,]+)\]"', run)
        assert listed.split(",") == expected
        assert set(expected) <= set(extras)


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
