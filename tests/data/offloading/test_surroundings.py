"""Whoever makes a batch computes in the program's surroundings, and then has its own again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from penstock.data.offloading.surroundings import Surroundings

HERE = Surroundings.here()
OTHERS = {
    "grad": not HERE.grad,
    "inference": not HERE.inference,
    "autocast": "bfloat16",
    "default_dtype": "float64",
    "deterministic": True,
    "precision": "medium",
    "mkldnn": False,
}
UNTOUCHED = """
import sys
from dataclasses import replace
from penstock.data.offloading.surroundings import Surroundings
with replace(Surroundings.here(), grad=False, autocast="bfloat16").applied():
    pass
sys.exit("torch._inductor" in sys.modules)
"""


@pytest.mark.parametrize("name", OTHERS)
def test_one_that_is_another_is_set_and_put_back(name: str) -> None:
    wanted = replace(HERE, **{name: OTHERS[name]})
    if name == "inference":  # it is without gradients
        wanted = replace(wanted, grad=False)
    with wanted.applied():
        assert Surroundings.here() == wanted
    assert Surroundings.here() == HERE


def test_all_are_put_back_after_an_error() -> None:
    wanted = Surroundings(**{**OTHERS, "inference": False, "grad": False})
    seen = []

    def fail() -> None:
        with wanted.applied():
            seen.append(Surroundings.here())
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        fail()
    assert seen == [wanted]
    assert Surroundings.here() == HERE
    assert torch.get_default_dtype() is torch.float32


def test_what_does_not_differ_is_left_alone() -> None:
    """To set some option to what it is imports PyTorch's compiler, for a second."""
    done = subprocess.run([sys.executable, "-c", UNTOUCHED], check=False, timeout=50)
    assert not done.returncode
