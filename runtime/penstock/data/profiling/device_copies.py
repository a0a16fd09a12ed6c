"""Copies from host to device in a program that is profiled: how long its thread is in them.

While a session measures, and only where the program has begun to use a device, three methods of
tensors are looked at as the training's thread calls them, in its own code or anybody's, and so is
what a loader calls to pin a batch. Tensors, arguments and results are the program's own; afterwards
its methods are back in their place.

A blocking copy waits for all that its stream was given before, which is the training's time and
none of the copy. So that is waited for first, as the copy would anyway. A copy that does not block
is never made to: whether the device is idle is only asked.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from types import MethodType
from typing import Any, Final, Protocol

METHODS: Final = ("to", "cuda", "xpu", "copy_")
DEVICES: Final = ("cuda", "xpu")
"""As PyTorch calls them; ROCm's are ``cuda`` too."""
MOST_PINNED: Final = 1024
"""Batches that are pinned between two deliveries, at most."""


class Device(Protocol):
    """What is asked of the devices of the process."""

    kinds: frozenset[str]

    def wait(self, device: Any) -> bool:
        """Wait for all that the current stream was given; False where that must not be asked."""
        ...

    def is_idle(self, device: Any) -> bool:
        """Whether the current stream has nothing to do."""
        ...


class InitialisedDevices:
    """The devices that the program uses itself; no driver is asked whether there are others."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        found = ((name, getattr(torch, name, None)) for name in DEVICES)
        self.kinds = frozenset(name for name, one in found if one and one.is_initialized())

    def wait(self, device: Any) -> bool:
        if self._captures(device):
            return False
        self._stream(device).synchronize()
        return True

    def is_idle(self, device: Any) -> bool:
        return not self._captures(device) and bool(self._stream(device).query())

    def _stream(self, device: Any) -> Any:
        return getattr(self._torch, device.type).current_stream(device)

    def _captures(self, device: Any) -> bool:
        """Whether a graph is being recorded, into which nothing else may come."""
        asked = getattr(getattr(self._torch, device.type), "is_current_stream_capturing", None)
        return asked is not None and bool(asked())


class DeviceCopies:
    """What the training's thread spends in copies, and its loader in pinning."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._device: Device | None = None
        self._process = os.getpid()
        self._thread = 0
        self._inside = False
        self._kinds: dict[tuple[bool, bool, bool], list[float]] = {}
        self._pinned: deque[tuple[float, float]] = deque(maxlen=MOST_PINNED)
        self._pins: tuple[Any, Any, Any] | None = None
        self._pinning = threading.local()
        self._replaced: list[tuple[str, Any, Any, bool]] = []

    def begin(self, device: Device, pin_module: Any) -> None:
        """Look at copies of this thread from now on, if there is a device.

        Args:
            device: of the process.
            pin_module: `torch.utils.data._utils.pin_memory`, by which loaders pin their batches.
        """
        self._thread = threading.get_ident()
        if self._device is not None or not device.kinds:
            return
        self._device = device
        tensor = self._torch.Tensor
        for name in METHODS:
            if (plain := getattr(tensor, name, None)) is not None:
                method = _Method(plain, functools.partial(self._call, name, plain))
                self._replaced.append((name, plain, method, name in tensor.__dict__))
                setattr(tensor, name, method)
        self._time_pins(pin_module)

    @property
    def begun(self) -> bool:
        """Whether copies are looked at."""
        return self._device is not None

    def end(self) -> None:
        """The program's methods are back, but where it has put others there itself."""
        tensor = self._torch.Tensor
        for name, plain, method, own in self._replaced:
            if tensor.__dict__.get(name) is not method:
                continue
            if own:
                setattr(tensor, name, plain)
            else:
                delattr(tensor, name)
        self._replaced.clear()
        if self._pins is not None:
            module, plain, timed = self._pins
            if module.pin_memory is timed:
                module.pin_memory = plain
            self._pins = None
        self._device = None
        self._thread = 0

    def take(self) -> tuple[list[list[float]], list[tuple[float, float]]]:
        """Copies by kind, and times of pinning, since the last call.

        Returns:
            For each kind: blocking, pinned, idle, number, seconds, bytes; and begins and ends.
        """
        copies = [[*map(int, kind), *values] for kind, values in self._kinds.items()]
        self._kinds.clear()
        pinned = []
        while self._pinned:
            pinned.append(self._pinned.popleft())
        return copies, pinned

    def _call(self, name: str, plain: Any, /, *args: Any, **options: Any) -> Any:
        if self._inside or threading.get_ident() != self._thread:
            return plain(*args, **options)
        if os.getpid() != self._process:  # a worker that was forked with all of this
            return plain(*args, **options)
        seen = self._copy(name, args, options)
        if seen is None:
            return plain(*args, **options)
        kind, nbytes = seen
        self._inside = True
        begun = time.monotonic()
        try:
            found = plain(*args, **options)
        finally:
            self._inside = False
        seconds = time.monotonic() - begun
        values = self._kinds.setdefault(kind, [0, 0.0, 0])
        values[0] += 1
        values[1] += seconds
        values[2] += nbytes
        return found

    def _copy(
        self, name: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[bool, bool, bool], int] | None:
        """Of what kind a call is, and its bytes; None: it copies nothing to a device.

        Modes and subclasses of the program do not see what is asked here.
        """
        device, torch = self._device, self._torch
        if device is None or not args:
            return None
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                if name == "copy_":
                    source = args[1] if len(args) > 1 else options.get("other")
                    target = args[0].device
                else:
                    source, target = args[0], self._target(name, args, options)
                if target is None or target.type not in device.kinds:
                    return None
                if not isinstance(source, torch.Tensor) or source.device.type != "cpu":
                    return None
                nbytes = source.numel() * source.element_size()
                blocking = not _non_blocking(args, options)
                if blocking:
                    return ((True, False, True), nbytes) if device.wait(target) else None
                pinned = bool(source.is_pinned())
                return (False, pinned, pinned or device.is_idle(target)), nbytes
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return None  # the program's own call says what is wrong

    def _target(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The device that ``to``, ``cuda`` or ``xpu`` is told; None: it is told none."""
        torch = self._torch
        told = options.get("device")
        if told is None and len(args) > 1:
            told = args[1]
        if isinstance(told, torch.Tensor):
            return told.device
        if isinstance(told, torch.device):
            return told
        kind = min(self._device.kinds) if self._device is not None else "cuda"
        if isinstance(told, int) and not isinstance(told, bool):
            return torch.device(name if name in DEVICES else kind, told)
        if isinstance(told, str):
            return torch.device(told)
        return torch.device(name) if name in DEVICES else None

    def _time_pins(self, module: Any) -> None:
        plain = module.pin_memory

        @functools.wraps(plain)
        def pin_memory(*args: Any, **options: Any) -> Any:
            if getattr(self._pinning, "inside", False):  # it calls itself for what a batch holds
                return plain(*args, **options)
            self._pinning.inside = True
            begun = time.monotonic()
            try:
                return plain(*args, **options)
            finally:
                self._pinning.inside = False
                self._pinned.append((begun, time.monotonic()))

        module.pin_memory = pin_memory
        self._pins = (module, plain, pin_memory)


class _Method:
    """Stands for a method of tensors while that is timed.

    PyTorch hands it to ``__torch_function__`` of the program's own tensors, which look such methods
    up in tables: it is equal to the plain one, and is that one in a pickle.
    """

    def __init__(self, plain: Any, call: Any) -> None:
        functools.update_wrapper(self, plain)
        self._plain = plain
        self._call = call

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._call(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_plain"), name)

    def __eq__(self, other: object) -> bool:
        return other is self or bool(self._plain == other)

    def __hash__(self) -> int:
        return hash(self._plain)

    def __reduce__(self) -> Any:
        return self._plain.__reduce__()


def _non_blocking(args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Of ``to``, ``cuda`` and ``copy_`` alike: by name, or the first flag in their order."""
    if "non_blocking" in options:
        return bool(options["non_blocking"])
    return next((one for one in args[1:] if isinstance(one, bool)), False)
