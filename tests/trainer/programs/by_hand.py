"""Gradient descent without an optimizer, over a DataLoader with a process; argument: seconds."""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

weights = torch.zeros(4, requires_grad=True)
loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, num_workers=1)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for (batch,) in loader:
        (batch @ weights - 1).pow(2).mean().backward()
        with torch.no_grad():
            weights -= 0.01 * weights.grad
            weights.grad = None
        time.sleep(0.05)
