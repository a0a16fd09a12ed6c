"""``penstock run --apply PROFILE``: do what a profile says would help, and look whether it did.

On one machine that is data workers beside the program: other workers of its loaders, on the cores
that it has. None is the choice where they would gain less than 10 %. What was promised is compared
with what the program then does, and where half of the gain or more is missing they are ended: the
program goes on alone, with the same batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.throughput.decision.cut_choice import judge_promise
from penstock.throughput.decision.offload import LEAST_GAIN, unit
from penstock.throughput.errors import ProfileError
from penstock.throughput.limits.capacity import in_words
from penstock.throughput.loop.prediction import Prediction, predict
from penstock.throughput.profiles.profile import Profile

NEAR: Final = 0.98
"""The fewest data workers that come so near to the best are taken."""
OTHER_DRAWS: Final = (
    "where samples draw random numbers, data workers have them draw others than the program alone, "
    "so that its losses differ; they are the same for any number of data workers"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with a program on this machine.

    Attributes:
        data_workers: to start beside it.
        promised: with them, in samples a second.
        now: without, on this machine.
        text: for people.
        batch_size: of the program's loader.
        unit: of the rates.
    """

    data_workers: int
    promised: Prediction
    now: float
    text: str
    batch_size: int = 1
    unit: str = "batches/s"


def check(profile: Profile, command: list[str], machine: str) -> str:
    """What is to be said before a profile is used; empty: nothing.

    Raises:
        ProfileError: it is the profile of another program.
    """
    names = {Path(word).name for word in command}
    if profile.program and profile.program not in names:
        raise ProfileError(
            f"it is the profile of {profile.program}, which {' '.join(command)} does not run: make "
            "one with penstock profile"
        )
    known = profile.keys.get("machine", "")
    if known and known != machine:
        return f"the profile was taken on another machine ({known}); costs differ on {machine}"
    return ""


def choose(profile: Profile, cores: float) -> Choice:
    """How many data workers a program should have beside it, on so many cores."""
    here = replace(profile.resources, cores=cores, data_workers=0)
    now = predict(profile, here)
    same = math.isclose(cores, profile.resources.cores)
    rate = profile.rate.value if same else now.rate
    rooms = range(1, max(1, math.ceil(cores / profile.processes)) + 1)
    found = [
        (number, predict(profile, replace(here, workers=here.workers + number))) for number in rooms
    ]
    best = max(one.rate for _, one in found)
    number, promised = next((n, one) for n, one in found if one.rate >= NEAR * best)
    each = unit(profile)
    number *= profile.processes  # which all have as many of them
    of_each = f" in each of {profile.processes} processes" if profile.processes > 1 else ""
    if promised.low <= 0:
        text = (
            f"{_unsure(profile)}, so that nothing can be promised: no data worker is started; "
            "profile it again, on a machine with nothing else to do"
        )
        return Choice(0, now, rate, text, profile.batch_size, each)
    if promised.rate < (1 + LEAST_GAIN) * rate:
        gain = promised.rate / rate - 1
        text = f"data workers would bring {max(0.0, gain):.0%} on {cores:g} cores: none is started"
        text = f"bound by {in_words(now.binding)}; {text}"
        return Choice(0, now, rate, text, profile.batch_size, each)
    text = (
        f"{number} data worker{'s' * (number > 1)} beside the program promise {promised.rate:.4g} "
        f"{each}{of_each} ({promised.low:.4g} to {promised.high:.4g}); it does {rate:.4g} without"
    )
    return Choice(number, promised, rate, text, profile.batch_size, each)


def _unsure(profile: Profile) -> str:
    """What keeps a profile from promising anything: the figure that is known worst."""
    if profile.step.relative_error > abs(profile.model_error):
        known = profile.step.relative_error
        return f"how long a step of its training takes is known to within {known:.0%} only"
    return f"its costs explain {1 + profile.model_error:.0%} of the rate that it had"


def verdict(choice: Choice, measured: float) -> tuple[bool, str]:
    """Whether data workers are kept, given the rate that was seen, and what to say."""
    kept, _ = judge_promise(measured, choice.now, choice.promised.rate)
    said = f"{measured:.4g} {choice.unit}, {choice.promised.rate:.4g} were promised"
    if not kept:
        return False, f"{said}: the data workers are ended, and the program goes on alone"
    if measured > choice.promised.high:
        return True, (
            f"{said}, {choice.promised.high:.4g} at most: kept, but the profile is of a busier "
            "machine, or of other data, and does not say what the program does alone now: profile "
            "it again"
        )
    return True, f"{said}: kept"
