"""What one server holds: partitions of a layout, what is built beside them, and copies of them.

Invariants: only requests of the present layout are answered, and only as far as its stage allows;
while FROZEN nothing changes, so partitions may be read without the lock.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.job.protocol import DataSpec
from penstock.parameter_server.connection import UnavailableError
from penstock.parameter_server.layout import Layout, ServerId
from penstock.parameter_server.protocol import ServerStage
from penstock.parameter_server.server.storage.lock import Lock
from penstock.parameter_server.server.storage.migration import LayoutBuild, PartitionInitialization
from penstock.parameter_server.server.storage.snapshots import Snapshots
from penstock.parameter_server.server.storage.staleness import Gate
from penstock.parameter_server.server.storage.store import Store
from penstock.parameter_server.wire import Unavailable


class ShardContents:
    """See the module's docstring; everything here is called with the lock held.

    Attributes:
        stage: what may be done with the present layout.
        layout: the present one, of which ``store`` has this server's partitions.
        building: the layout that is built beside it.
        data: the data of all that is held or built.
        gates: whether this server is the one that keeps the bound on staleness, with ``gate``.
        snapshots: the copy that is kept or made.
        trouble: why the newest orders could not be carried out.
    """

    def __init__(self, me: ServerId, lock: Lock, changed: Callable[[], None]) -> None:
        self.stage = ServerStage.EMPTY
        self.layout: Layout | None = None
        self.store: Store | None = None
        self.building: LayoutBuild | None = None
        self.data: DataSpec | None = None
        self.gates = False
        self.gate = Gate()
        self.snapshots = Snapshots(lock, changed)
        self.trouble = ""
        self._me = me

    # ------------------------------------------------------------------ what may be asked of it

    def present(self, number: object) -> Store:
        """The partitions of the present layout, if that is its number.

        Raises:
            UnavailableError: it is not.
        """
        if self.layout is None or self.store is None:
            raise UnavailableError(Unavailable.LAYOUT, f"{self._me} holds no parameters now")
        if number != self.layout.number:
            raise UnavailableError(
                Unavailable.LAYOUT, f"{self._me} holds layout {self.layout.number}, not {number}"
            )
        return self.store

    def serving(self, number: object, *, begins: bool = False) -> Store:
        """As `present`, to be trained on; ``begins``: a batch begins.

        Raises:
            UnavailableError: it is not served now.
        """
        store = self.present(number)
        if self.stage is ServerStage.FROZEN:
            raise UnavailableError(Unavailable.FROZEN, f"{self._me} is frozen")
        if begins and self.stage is ServerStage.HALTED:
            raise UnavailableError(Unavailable.HALTED, f"{self._me} begins no batch now")
        return store

    def snapshot(self, number: object) -> Store:
        """The copy of that number.

        Raises:
            UnavailableError: there is none.
        """
        copy = self.snapshots.get(number)
        if copy is None:
            raise UnavailableError(Unavailable.LAYOUT, f"{self._me} holds no snapshot {number}")
        return copy

    def initialization(self, number: object) -> PartitionInitialization:
        """The layout of that number, to be filled by the chief.

        Raises:
            UnavailableError: there is none.
        """
        building = self.building
        if not isinstance(building, PartitionInitialization) or building.layout.number != number:
            raise UnavailableError(
                Unavailable.LAYOUT, f"{self._me} has no layout {number} to be filled"
            )
        return building

    # ------------------------------------------------------------------ how it changes

    def clear_trouble(self) -> None:
        """New orders have come: what was wrong with the last is of no interest any more."""
        self.trouble = ""

    def report_trouble(self, trouble: str) -> None:
        """The newest orders could not be carried out."""
        self.trouble = trouble

    def describe_data(self, data: DataSpec | None) -> None:
        """What is held or built is trained on this data."""
        self.data = data

    def begin_building(self, building: LayoutBuild) -> None:
        """Build a layout beside the present one; any other build has been abandoned."""
        self.building = building

    def drop_present(self) -> None:
        """Hold nothing; what is built goes on."""
        self.enter(ServerStage.EMPTY)
        self.layout = self.store = None

    def empty(self) -> None:
        """Hold and build nothing."""
        self.abandon()
        self.drop_present()
        self.data = None

    def abandon(self) -> None:
        """Build nothing any more."""
        if self.building is not None:
            self.building.abandoned.set()
        self.building = None

    def enter(self, stage: ServerStage) -> None:
        """Do with the present layout what the stage says."""
        if stage is not ServerStage.FROZEN:
            self.snapshots.withdraw()
        self.stage = stage

    def take_up(self, number: int) -> bool:
        """Make a layout the present one if it has been built; whether it is the present one now."""
        building = self.building
        if building is not None and building.built and building.layout.number == number:
            self.layout, self.store, self.building = building.layout, building.store, None
            self.gate = Gate()
            self.gates = self.layout.index_of(self._me) == 0
            self.snapshots.withdraw()
        self.abandon()
        return self.layout is not None and self.layout.number == number
