"""The steps that a program makes with one loader's batches: recorded, proven, and then moved.

The first step is left alone, three are recorded, and what moves is chosen. From the loader's next
epoch on whoever makes its batches makes that as well. What came is used as
`penstock.data.partition.declared` says: after ten steps in which it was the same, bit by bit, as
what the program has, and but for one in a thousand afterwards. Half of those steps are looked at by
nobody at all: what the program gives to the module that reads a value is held against what came for
it. Any doubt ends it: the program then runs as written, and one line says why.
"""

from __future__ import annotations

import itertools
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.errors import PipelineTooLargeError
from penstock.data.offloading.arguments import Built, Leaf
from penstock.data.offloading.batch_calls import (
    BatchCall,
    BatchCalls,
    Result,
    split,
    told_of_places,
)
from penstock.data.offloading.pace import Pace
from penstock.data.offloading.portable import pack_function
from penstock.data.offloading.surroundings import Surroundings
from penstock.data.partition import declared
from penstock.data.partition.declared import Declared, Kind
from penstock.data.partition.proof import Mode
from penstock.data.pipeline import MAX_PIPELINE_BYTES
from penstock.data.protocol import PartitionNote
from penstock.data.torchpartition.observation.batch_tensors import BatchTensors, with_tensors
from penstock.data.torchpartition.observation.compiled import compiled_function
from penstock.data.torchpartition.observation.deferred import Deferred
from penstock.data.torchpartition.observation.modules import (
    FrozenModules,
    Watching,
    Witness,
    add_witness,
    remove_witness,
)
from penstock.data.torchpartition.observation.record import Recorder
from penstock.data.torchpartition.observation.recording import Recording, merged
from penstock.data.torchpartition.plan import Plan, plan
from penstock.data.torchpartition.prefix import NO_VARIANT, fits, metas_of, prefix_of
from penstock.data.torchpartition.replay import (
    COPIED_BYTES,
    Came,
    Comparison,
    Expected,
    Replay,
    compared,
)
from penstock.data.torchpartition.under_way import MOST_AHEAD, StepsUnderWay, UnderWay
from penstock.data.weight_bundle import MAX_BYTES

logger = logging.getLogger(__name__)

LEFT_ALONE: Final = 1
"""Steps at the beginning, in which programs do things once, such as to compile."""
MAX_VARIANTS: Final = 8
MAX_UNUSED: Final = 100
"""Steps in a row in which the program does not make the calls that moved."""
MAX_NOT_COMPARED: Final = 10
"""Steps that were to be compared and made other calls."""
_FAR_AHEAD: Final = "the program takes more than {} batches before it uses the first of them"
_OTHER_CALLS: Final = "the program does not make the calls that were recorded"
_numbers = itertools.count(1 << 32)
"""Of calls; those of declared functions are others."""


class Sent:
    """What is made of the batches of an epoch, and how it is used."""

    def __init__(self, planned: Plan, others: Sequence[Recording], frozen: FrozenModules) -> None:
        """Raises what pickling raises."""
        self.others = len(others)
        self.prefix = prefix_of(planned, others)
        self.plan = planned
        function = pack_function(self.prefix, copied_bytes=COPIED_BYTES)
        self.expected = Expected(planned, frozen, function)
        self.digest = function.digest
        whole, none = Built(tuple, (), (Leaf(()),)), Built(dict, (), ())
        self.call = BatchCall(next(_numbers), function, whole, none, Surroundings.here())

    def came(self, result: Result) -> Came | None:
        """What came with a batch; None: it is of sizes for which there is no variant."""
        variant, crossing, metas = result.value
        if variant == NO_VARIANT:
            return None
        values = dict(zip(self.prefix.crossing, crossing, strict=True))
        return Came(result.place, variant, values, metas_of(metas))

    def witness(self, came: Came, *, among_others: bool) -> Witness | None:
        """Of a step in which nothing is looked at; None: some value enters no module.

        ``among_others``: as `Witness` says.
        """
        expected: dict[int, list[tuple[int, int]]] = {}
        for key in self.plan.crossing:
            if key not in self.plan.recording.entered:
                return None
            module, place = self.plan.recording.entered[key]
            expected.setdefault(id(module), []).append((place, key))
        return Witness(
            expected, lambda key, own: compared(own, came, key), among_others=among_others
        )


class LoaderSteps:
    """See the module's docstring; it has what `LoaderCalls` has for declared functions.

    Attributes:
        announces: it says what is to move from its next epoch on, before it does.
    """

    MOST_AHEAD = MOST_AHEAD
    """As `StepsUnderWay` has it."""

    def __init__(
        self,
        name: str,
        look: Callable[[Plan | None, str], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``name``: of the loader, for people. ``clock``: of seconds.

        ``look``: is told once what would move, or why nothing would; then nothing does.
        """
        self.name = name
        self._look_only = look
        self.announces = True
        self.state = Declared()
        self.plan: Plan | None = None
        self.steps = self.moved = self.compared = 0
        self._begun = 0  # steps, as far as something was decided for them
        self._plain = 0  # batches that belong to the recorded step, and were not looked at
        self._why = ""  # it fell back
        self._clock, self._pace = clock, Pace()
        self._frozen = FrozenModules()
        self._recordings: list[Recording] = []
        self._segment = self.state.segment  # that they are of
        self._others: list[Recording] = []
        self._classes: set[Any] = set()
        self._sent: Sent | None = None
        self._open = StepsUnderWay(self.MOST_AHEAD)
        self._unused = self._not_compared = 0
        self._watching = Watching()

    def begin_epoch(self, why_not: str = "", seed: int | None = None) -> BatchCalls | None:
        """What is done with each batch of the epoch where it is made; None: nothing.

        ``why_not``: the loader's batches cannot have results. ``seed``: nothing moves that draws.
        """
        for step in self._open.all_over():
            self._end(step)
        recording = self.state.phase is Phase.RECORDING
        slower = self._pace.begin_epoch(moved=self._sent is not None and not recording)
        if why := why_not or (slower if self._sent is not None else ""):
            self.give_up(why)
        if self.state.phase is Phase.FELL_BACK or self.plan is None:
            return None
        if name := compiled_function():
            self.give_up(_compiles(name))
        elif self._sent is not None and (changed := self._sent.expected.changed()):
            self.give_up(changed)
        elif self._sent is None or self._sent.others < len(self._others):
            self._pack()
        return BatchCalls((self._sent.call,)) if self._sent is not None else None

    def deliver(self, given: Any, *, first: bool = True) -> Any:
        """What the program gets of what was made; the step that it begins is looked at, or not."""
        batch, results = split(given)
        self._pace.step(self._clock())
        self.steps += 1
        if not first and self.state.phase is Phase.RECORDING:
            self._plain += 1  # the step that is recorded ends with what the optimizer does
            return batch
        self.end_step()
        self._begun += 1
        if self.state.phase is Phase.FELL_BACK or self._begun <= LEFT_ALONE:
            self._watching.end(needed=bool(self._open))
            return batch
        if self._begun == LEFT_ALONE + 1 and (name := compiled_function()):
            self.give_up(_compiles(name))
            return batch
        tensors = BatchTensors(batch)
        if tensors.problem:
            self.give_up(tensors.problem)
            return batch
        return self._begin(batch, tensors, self._came(results))

    def end_step(self) -> None:
        """The program wants its next batch, or has no more."""
        for step in self._open.over():
            if step.waits and isinstance(step.work, Recorder):
                self.give_up(_FAR_AHEAD.format(self.MOST_AHEAD))
            self._end(step)
        _let_witnesses_see(self._open)

    def notes(self) -> dict[int, PartitionNote]:
        """As `LoaderWork` says."""
        planned, state = self.plan, self.state
        note = PartitionNote(
            name=self.name, state=state.phase, steps=self.steps, moved=self.moved, why=self._why
        )
        if planned is None or not planned.moved:
            return {id(self): note}
        share = planned.moved_seconds / planned.step_seconds if planned.step_seconds else 0.0
        found = {
            "prefix": planned.why,
            "prefix_percent": min(100, round(100 * share)),
            "crossing_bytes": planned.crossing_bytes,
        }
        return {id(self): note.model_copy(update=found)}

    def give_up(self, why: str) -> None:
        """The program runs as written from now on; said once."""
        if self.state.phase is not Phase.FELL_BACK:
            self._tell(declared.give_up(self.state, why), why)

    refuse = give_up
    """Data workers cannot be sent what moves."""

    def _came(self, results: Sequence[Result]) -> Came | None:
        """What came for the step that begins."""
        if self._sent is None:
            return None
        result = next((one for one in results if one.call == self._sent.call.number), None)
        if result is None:
            return None
        if result.why:
            self.give_up(result.why)
            return None
        return self._sent.came(result)

    def _begin(self, batch: Any, tensors: BatchTensors, came: Came | None) -> Any:
        kind = None if came is None else Kind(came.place, str(tensors.shapes))
        self.state, mode = declared.ask(self.state, kind)
        if mode is Mode.RECORD or (mode is Mode.RAW and self._is_new(tensors)):
            work = Recorder(tensors, self._frozen)
            return self._look(batch, work, None, decides=mode is Mode.RECORD)
        if mode is Mode.RAW or came is None:
            self._open.begin(UnderWay(None, self.state.step, None))
            return batch
        sent = self._sent
        assert sent is not None, "something came"
        variant = sent.prefix.variants[came.variant]
        if mode is Mode.PARTITIONED:
            replay = Replay(sent.expected, variant, tensors.tensors, came)
            return self._look(batch, replay, kind)
        among_others = self._open.ahead > 1
        witness = None if self.compared % 2 else sent.witness(came, among_others=among_others)
        if witness is not None:
            self._watching.begin()
            self._open.begin(UnderWay(witness, self.state.step, kind))
            _let_witnesses_see(self._open)
            return batch
        comparison = Comparison(sent.expected, variant, tensors.tensors, came)
        return self._look(batch, comparison, kind)

    def _look(
        self, batch: Any, work: Recorder | Replay, kind: Kind | None, *, decides: bool = True
    ) -> Any:
        self._watching.begin()
        self._plain = 0
        # Who has a tensor has its step; a step that had its tensors would wait for the collector.
        handed, work.handed = work.handed, []
        alive = [weakref.ref(one) for one in handed if isinstance(one, Deferred)]
        self._open.begin(UnderWay(work, self.state.step, kind, decides, alive))
        return with_tensors(batch, handed)

    def _is_new(self, tensors: BatchTensors) -> bool:
        """Whether a batch is of sizes that were not recorded, and are to be."""
        if self.plan is None or self.state.phase not in (Phase.VERIFYING, Phase.ON):
            return False
        sizes = tensors.shapes
        if len(self._classes) >= MAX_VARIANTS or sizes in self._classes:
            return False
        self._classes.add(sizes)
        return tensors.kinds == _kinds(self.plan.recording)

    def _end(self, step: UnderWay) -> None:
        if isinstance(step.work, Recorder):
            self._end_recorded(step.work, step)
        elif isinstance(step.work, Witness):
            self._end_witnessed(step.work, step)
        elif isinstance(step.work, Replay):
            self._end_replayed(step.work, step)

    def _end_recorded(self, work: Recorder, step: UnderWay) -> None:
        found = work.finish()
        together = (1 + self._plain) * self._open.used_meanwhile
        found = replace(found, seconds=found.seconds / together)
        enough = self.state.proof.settings.recorded_steps
        last = not step.decides or len(self._recordings) + 1 >= enough
        if work.problem:
            self.give_up(work.problem)
        elif last and (name := compiled_function()):  # in one of these steps
            self.give_up(_compiles(name))
        elif not step.decides:
            if self.plan is not None and fits(self.plan, found):
                self._others.append(found)
        elif self.state.phase is Phase.RECORDING and step.number >= self.state.segment[1]:
            if self._segment != self.state.segment:
                self._recordings, self._segment = [], self.state.segment
            self._recordings.append(found)
            unlike = self._recordings[0].signature().difference(found.signature())
            state = declared.record(self.state, self._signature(found), step.number)
            self._tell(state, f"its steps are not alike: {unlike}" if unlike else "")
            if self.state.place is None and self.state.proof.recorded_alike:
                self._choose()

    def _signature(self, found: Recording) -> str:
        """Equal for recordings that are alike."""
        return found.signature().digest

    def _choose(self, chosen: tuple[int, ...] | None = None) -> None:
        """What moves; ``chosen``: as `plan` says."""
        recording = merged(self._recordings)
        self.plan = plan(recording, chosen)
        others = {one.shapes: one for one in self._recordings if one.shapes != recording.shapes}
        self._others = [one for one in others.values() if fits(self.plan, one)]
        self._classes = {recording.shapes, *others}
        self._recordings = []
        if not self.plan.moved or self._look_only is not None:
            self.give_up(self.plan.why)
            return
        self._pack()
        if self._sent is not None:
            if self.state.place is None:
                self._tell(declared.choose(self.state, self._sent.digest))
            if self.announces:
                logger.warning(
                    "partition: %s: Verifying from its next epoch on: %s", self.name, self.plan.why
                )

    def _pack(self) -> None:
        assert self.plan is not None, "it was chosen"
        try:
            sent = Sent(self.plan, self._others, self._frozen)
        except PipelineTooLargeError:
            pickled, weights = MAX_PIPELINE_BYTES >> 20, MAX_BYTES >> 30
            self.give_up(
                f"what moves has more than {pickled} MiB when pickled, or {weights} GiB of weights"
            )
        except Exception as error:  # noqa: BLE001 - pickling runs code of the program's classes
            why = f"what moves cannot be pickled: {type(error).__name__}: {error}"
            self.give_up(why[:500])
        else:
            self._sent = sent

    def _end_replayed(self, work: Replay, step: UnderWay) -> None:
        work.finish()
        if work.changed:
            self.give_up(work.changed)
        elif work.difference:
            self._end_compared(step, work.difference)
        elif work.diverged and (name := compiled_function()):  # since the epoch began
            self.give_up(f"{_compiles(name)}: {work.diverged}")
        elif work.diverged:
            self._tell(declared.diverge(self.state, work.diverged, step.number))
        elif not work.complete:
            self._end_unused(step, compared=isinstance(work, Comparison))
        elif isinstance(work, Comparison):
            self._end_compared(step)
        else:
            self.moved += 1
            self._unused = 0

    def _end_witnessed(self, work: Witness, step: UnderWay) -> None:
        remove_witness(work)
        if found := next((one for one in work.seen.values() if one), ""):
            self._end_compared(step, f"in a step that nobody looked at, {found}")
        elif self._sent is None or len(work.seen) < len(self._sent.plan.crossing):
            self._end_unused(step, compared=True)
        else:
            self._end_compared(step)

    def _end_compared(self, step: UnderWay, difference: str = "") -> None:
        assert step.kind is not None, "something came"
        self.compared += 1
        self._unused = 0
        found = difference + told_of_places(step.kind.place) if difference else None
        self._tell(declared.compare(self.state, step.kind, found, step.number))

    def _end_unused(self, step: UnderWay, *, compared: bool) -> None:
        """The program did not make the calls, or not all of them."""
        self._unused += 1
        if compared:
            self._not_compared += 1
            self._tell(declared.skip(self.state, step.number))
        if self._unused >= MAX_UNUSED or self._not_compared >= MAX_NOT_COMPARED:
            name = compiled_function()
            self.give_up(_compiles(name) if name else _OTHER_CALLS)

    def _tell(self, state: Declared, why: str = "") -> None:
        before, self.state = self.state.phase, state
        if state.phase is before:
            return
        if state.phase is Phase.FELL_BACK:
            self._sent, self._why = None, why or state.why
            if self._look_only is not None:
                self._look_only(self.plan, self._why)
                return
            logger.warning("partition: %s: FellBack: %s", self.name, self._why)
        elif state.phase is Phase.ON and self.plan is not None:
            # Nobody configures a log in a training program: what is below this is not seen.
            logger.warning("partition: %s: On: %s", self.name, self.plan.why)
        elif state.phase is Phase.RECORDING:
            logger.warning("partition: %s: Recording: %s", self.name, state.why)


def _let_witnesses_see(steps: StepsUnderWay) -> None:
    """A step that nobody looks at begins when those before it are over, or among them."""
    for step in steps.in_use:
        if isinstance(step.work, Witness):
            add_witness(step.work)


def _compiles(name: str) -> str:
    return f"the program compiles {name}, which would be given other tensors"


def _kinds(recording: Recording) -> tuple[Any, ...]:
    return tuple((path, *recording.metas[key].kind) for key, path in enumerate(recording.paths))
