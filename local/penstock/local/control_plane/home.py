"""The folder in which a control plane on this machine keeps its files.

One folder, one control plane: the supervisor holds a lock on ``lock`` for as long as it lives, so a
second one in the same folder is refused by the operating system and not by a stale pid file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path


class HomeError(Exception):
    """The folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class ComponentState:
    """One process of the control plane, as last seen by the supervisor."""

    pid: int
    url: str
    restarts: int


@dataclass(frozen=True)
class ControlPlaneState:
    """What the supervisor tells everybody else; ``error`` is set when it could not start."""

    supervisor_pid: int
    ready: bool
    components: dict[str, ComponentState] = field(default_factory=dict)
    error: str | None = None
    api_server: str = ""
    """Of the cluster that it is for, where that is not its own."""


@dataclass(frozen=True)
class Home:
    """Paths inside the folder, and the state file that the supervisor alone writes."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def pods(self) -> Path:
        return self.folder / "pods"

    @property
    def cluster_database(self) -> Path:
        return self.folder / "cluster.sqlite"

    @property
    def brain_database(self) -> Path:
        return self.folder / "brain.sqlite"

    @property
    def brain_token(self) -> Path:
        """Shown to the Brain by its planner, and by the command line of who started it."""
        return self.folder / "brain-token"

    @property
    def lock_file(self) -> Path:
        return self.folder / "lock"

    @property
    def state_file(self) -> Path:
        return self.folder / "state.json"

    def create(self) -> None:
        """Make the folder, readable by its owner only: it will hold tokens.

        Raises:
            HomeError: It cannot be made or written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.logs.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(bytes(4096))
        except OSError as error:
            raise HomeError(
                f"{self.folder} cannot be used: {error.strerror}; "
                "choose a folder that you can write to with --home"
            ) from None

    def write_brain_token(self) -> None:
        """Have a token for the Brain, a new one each time."""
        _write_private(self.brain_token, f"pst_{secrets.token_urlsafe(32)}\n")

    def purge(self) -> list[str]:
        """Remove what control planes left in the folder, and the folder if nothing else is in it.

        Returns the names of what is not theirs and stays.

        Raises:
            HomeError: There is no sign of a control plane: ``--home`` may have been meant for
                something else.
        """
        if self.read_state() is None:
            raise HomeError(
                f"nothing was removed: {self.folder} holds no {self.state_file.name} of a control "
                "plane; name the folder of one with --home, or remove it by hand"
            )
        for database in (self.cluster_database, self.brain_database):
            for suffix in ("", "-wal", "-shm", "-journal"):
                database.with_name(database.name + suffix).unlink(missing_ok=True)
        for folder in (self.logs, self.pods):
            if folder.is_dir():
                shutil.rmtree(folder)
        own = (self.kubeconfig, self.lock_file, self.state_file, self.brain_token)
        for file in (*own, *map(_temporary, own)):
            file.unlink(missing_ok=True)
        kept = sorted(path.name for path in self.folder.iterdir())
        if not kept:
            self.folder.rmdir()
        return kept

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; raises HomeError when another control plane holds it."""
        with self.lock_file.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HomeError(
                    f"a control plane is already up in {self.folder}; "
                    "stop it with `penstock down` or choose another folder with --home"
                ) from None
            yield

    def is_locked(self) -> bool:
        """Whether a living supervisor holds the folder."""
        if not self.lock_file.exists():
            return False  # and none is made: the folder may be anybody's
        try:
            with self.lock():
                return False
        except HomeError:
            return True

    def write_state(self, state: ControlPlaneState) -> None:
        """Replace the state file atomically."""
        _write_private(self.state_file, json.dumps(asdict(state), indent=2) + "\n")

    def read_state(self) -> ControlPlaneState | None:
        """The state that the supervisor wrote last; None where there is none, else HomeError."""
        try:
            raw = json.loads(self.state_file.read_text())
            components = {
                name: ComponentState(**values) for name, values in raw["components"].items()
            }
            return ControlPlaneState(**{**raw, "components": components})
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise HomeError(
                f"{self.state_file} is not the state of a control plane ({error}); "
                "choose another folder with --home"
            ) from None


def _temporary(path: Path) -> Path:
    return path.with_suffix(".tmp")


def _write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one that its owner alone may read or write.

    Whoever reads these goes where they say, with the token that they hold.
    """
    temporary = _temporary(path)
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_text(text)
    temporary.replace(path)
