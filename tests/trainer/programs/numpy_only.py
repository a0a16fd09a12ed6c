"""Least squares by gradient descent, without PyTorch."""

from __future__ import annotations

import numpy as np

rng = np.random.default_rng(0)
features = rng.normal(size=(64, 4))
target = features @ np.arange(4.0)
weights = np.zeros(4)
for _ in range(200):
    weights -= 0.01 * features.T @ (features @ weights - target) / 64
print("trained", weights)
