"""Found before PyTorch where a program of TensorFlow runs, whose image would not have it."""

from __future__ import annotations

raise ImportError("there is no PyTorch here")
