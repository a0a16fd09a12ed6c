"""What a pipeline says of the place that it comes from, and who refuses to be another."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.data.errors import NotPortableError
from penstock.data.pipeline import Pipeline, open_pipeline, pack_pipeline
from penstock.data.sharing.pipeline import content_digest

TOKEN = "token"
NAME = "transforms_of_a_test"
CODE = """
import functools
import math

SIZES = [32, 64]

def _scale(value, by=2):
    return value * by

class Flip:
    chance = 0.5
    kinds = {"left", "right", "up", "down"}

    def __init__(self, root="/data"):
        self.root = root

    def __getitem__(self, index):
        return _scale(index) + math.floor(self.chance) + SIZES[0]

    def __len__(self):
        return 8

    @staticmethod
    def kind(name):
        return name in {"left", "right", "up", "down"}

    @functools.lru_cache
    def cached(self):
        return 1
"""

Load = Callable[[str], Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Reads the module anew, with such code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def read(code: str) -> Any:
        (tmp_path / f"{NAME}.py").write_text(textwrap.dedent(code))
        sys.modules.pop(NAME, None)
        importlib.invalidate_caches()
        return importlib.import_module(NAME)

    yield read
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize(
    "change",
    [
        ("value * by", "value * by * 1"),  # in a function that the class calls
        ("by=2", "by=3"),
        ("chance = 0.5", "chance = 0.4"),
        ("SIZES = [32, 64]", "SIZES = [32, 96]"),
        ("math.floor", "math.ceil"),
        ('name in {"left", "right"', 'name in {"right"'),
        ("return 1", "return 2"),  # below a decorator
        ('"up", "down"}\n\n', '"up"}\n\n'),
    ],
)
def test_changed_code_of_a_module_is_another_pipeline(load: Load, change: tuple[str, str]) -> None:
    before = content_digest(load(CODE).Flip())
    packed = pack_pipeline(Pipeline(load(CODE).Flip(), list), TOKEN)
    assert CODE.replace(*change) != CODE
    assert content_digest(load(CODE.replace(*change)).Flip()) != before
    with pytest.raises(NotPortableError, match=f"the code of {NAME}.Flip is another here"):
        open_pipeline(packed.blob, packed.signature, TOKEN)


def test_lines_and_comments_change_nothing(load: Load) -> None:
    before = content_digest(load(CODE).Flip())
    packed = pack_pipeline(Pipeline(load(CODE).Flip(), list), TOKEN)
    changed = CODE.replace("class Flip", "# not the same line\n\nclass Flip")
    assert content_digest(load(changed).Flip()) == before
    opened = open_pipeline(packed.blob, packed.signature, TOKEN)
    assert isinstance(opened, Pipeline)
    assert len(opened.dataset) == 8


def test_code_that_has_nothing_to_do_with_it_changes_nothing(load: Load) -> None:
    code = f"{CODE}\ncalls = []\ndef train():\n    assert calls\n    calls.append(1)\n"
    before = content_digest(load(code).Flip())
    packed = pack_pipeline(Pipeline(load(code).Flip(), list), TOKEN)
    assert content_digest(load(code.replace("assert calls", "assert not calls")).Flip()) == before
    open_pipeline(packed.blob, packed.signature, TOKEN)


def test_code_that_a_module_imports_counts_too(load: Load, tmp_path: Path) -> None:
    def digest(by: int) -> bytes:
        (tmp_path / "scales_of_a_test.py").write_text(f"def scale(value):\n    return value * {by}")
        sys.modules.pop("scales_of_a_test", None)
        importlib.invalidate_caches()
        code = CODE.replace("_scale(index)", "scale(index)")
        return content_digest(load(f"from scales_of_a_test import scale\n{code}").Flip())

    try:
        assert digest(2) == digest(2)
        assert digest(2) != digest(3)
    finally:
        sys.modules.pop("scales_of_a_test", None)


@pytest.mark.parametrize("root", ["pictures", Path("pictures/one.npy"), "./pictures"])
def test_files_named_from_a_folder_are_of_that_folder(
    load: Load, root: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for number, folder in enumerate(folders):
        (folder / "pictures").mkdir(parents=True)
        np.save(folder / "pictures" / "one.npy", np.array(number))
    flip = load(CODE).Flip
    monkeypatch.chdir(folders[0])
    digest = content_digest(flip(root))
    packed = pack_pipeline(Pipeline(flip(root), list), TOKEN)
    anywhere = content_digest(flip("/pictures"))
    free = pack_pipeline(Pipeline(flip("/pictures"), list), TOKEN)
    monkeypatch.chdir(folders[1])
    assert content_digest(flip(root)) != digest
    assert content_digest(flip("/pictures")) == anywhere
    with pytest.raises(NotPortableError, match="it names files from the folder"):
        open_pipeline(packed.blob, packed.signature, TOKEN, place=False)
    open_pipeline(free.blob, free.signature, TOKEN, place=False)
    assert Path.cwd() == folders[1]
    open_pipeline(packed.blob, packed.signature, TOKEN)
    assert Path.cwd() == folders[0]


def test_a_folder_that_code_names_counts_too(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = CODE.replace("return _scale(index)", 'return open(f"pictures/{index}").read()')
    monkeypatch.chdir(tmp_path)
    before = content_digest(load(code).Flip())
    (tmp_path / "pictures").mkdir()
    assert content_digest(load(code).Flip()) != before
