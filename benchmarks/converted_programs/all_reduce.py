"""A torchrun script in small: its world sums what each rank has, and each rank tells what it saw.

Argument: the folder that it is told in, a file for each rank.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import distributed

distributed.init_process_group("gloo")
rank, world = distributed.get_rank(), distributed.get_world_size()
total = torch.tensor([rank + 1])
distributed.all_reduce(total)
told = {"world": world, "sum": int(total), "local": int(os.environ.get("LOCAL_RANK", "-1"))}
Path(sys.argv[1], f"rank-{rank}").write_text(json.dumps(told))
distributed.barrier()
distributed.destroy_process_group()
