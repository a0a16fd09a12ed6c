"""Puts a pod's service account where every program looks for it, in each Python process of the pod.

Token, certificate authority and namespace lie in ``/var/run/secrets/kubernetes.io/serviceaccount``
by a convention that client libraries (and their like) have in their code, where no argument or
variable can change it. There being no mount namespace, what opens, looks at or lists a path of
that one folder is turned to the folder that the kubelet made: ``open``, the calls of ``os`` on
which :mod:`os.path` and :mod:`pathlib` stand, and the certificates that :mod:`ssl` loads. A pod
without a service account sees none there, also where this machine is itself a pod and has one.

A path costs one comparison of its beginning (a tenth of a microsecond) more than before. Native
code that opens files by itself is not covered.
"""

import builtins
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

FOLDERS = tuple(f"{run}/secrets/kubernetes.io/serviceaccount" for run in ("/var/run", "/run"))
_NOWHERE = "/nonexistent"
_CALLS = ("open", "stat", "lstat", "access", "listdir", "scandir", "readlink")


def redirected(path: "Any", to: str) -> "Any":
    """The path, or where it really leads if it is of the account's folder."""
    text = path
    if type(path) is not str:
        if not hasattr(path, "__fspath__"):
            return path
        text = os.fspath(path)
        if type(text) is not str:
            return path
    if text.startswith(FOLDERS):
        for folder in FOLDERS:
            rest = text.removeprefix(folder)
            if rest != text and rest[:1] in ("", "/"):
                return to + rest
    return path


class _Redirecting:
    """A function of a path that is told the real one.

    No Python function, which would become a method where a class has it as an attribute.
    """

    def __init__(self, call: "Callable[..., Any]", to: str) -> None:
        self._call = call
        self._to = to
        self.__name__ = self.__qualname__ = call.__name__
        self.__doc__ = call.__doc__
        self.__wrapped__ = call

    def __call__(self, *args: "Any", **named: "Any") -> "Any":
        if args:
            path = args[0]
            if type(path) is not str or path.startswith(FOLDERS):
                args = (redirected(path, self._to), *args[1:])
        else:
            for name in ("file", "path"):
                if name in named:
                    named[name] = redirected(named[name], self._to)
        return self._call(*args, **named)


def _trust(ssl: "ModuleType", to: str) -> None:
    load = ssl.SSLContext.load_verify_locations

    def load_verify_locations(
        self: "Any", cafile: "Any" = None, capath: "Any" = None, cadata: "Any" = None
    ) -> None:
        load(self, redirected(cafile, to), redirected(capath, to), cadata)

    ssl.SSLContext.load_verify_locations = load_verify_locations


class _WaitForSsl:
    """A finder that finds nothing itself: importing ssl costs more than most programs need."""

    def __init__(self, to: str) -> None:
        self._to = to

    def find_spec(
        self, name: str, path: "Any" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "ssl":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute, to = spec.loader.exec_module, self._to

        def exec_module(module: "ModuleType") -> None:
            execute(module)
            _trust(module, to)

        # The loader's method is wrapped on purpose.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(folder: str) -> None:
    """Turn the account's folder to this one; empty: to nowhere."""
    to = folder or _NOWHERE
    builtins.open = io.open = _Redirecting(io.open, to)
    for name in _CALLS:
        call = getattr(os, name)
        redirecting = _Redirecting(call, to)
        # Who asks what a call can do asks by the call itself.
        for abilities in (
            os.supports_dir_fd,
            os.supports_fd,
            os.supports_follow_symlinks,
            os.supports_effective_ids,
        ):
            if call in abilities:
                abilities.add(redirecting)
        setattr(os, name, redirecting)
    if "ssl" in sys.modules:
        _trust(sys.modules["ssl"], to)
    else:
        sys.meta_path.insert(0, _WaitForSsl(to))
