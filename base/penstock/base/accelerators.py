"""The extended resources that count as accelerators, unless who runs a scheduler names others."""

from __future__ import annotations

from typing import Final

ACCELERATOR_KINDS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "google.com/tpu")
