"""What the program uses of its GPUs, by NVML; nothing where there is no GPU, driver or library.

`visible_devices` and `device_use` decide, `nvml` asks the driver, `gpu_meter` does so in a thread.
"""

from __future__ import annotations
