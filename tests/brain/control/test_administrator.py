"""When a job is due: a pure decision, tried with a clock that is an argument."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.enums import Optimize, Trigger
from penstock.brain.configuration import AdministratorSettings
from penstock.brain.control.administrator import Memory, Observed, decide

SETTINGS = AdministratorSettings()


def observed(
    plan: int | None = 1,
    *,
    optimize: Optimize = Optimize.AUTO,
    planned: float = 0.0,
    servers: bool = False,
    step: int = 0,
    sampled: float | None = None,
    out_of_memory: float | None = None,
    symptoms: tuple[Trigger, ...] = (),
) -> Observed:
    return Observed(
        optimize=optimize,
        plan=plan,
        planned_seconds=planned,
        changed_servers=servers,
        step=step,
        sampled_seconds=sampled,
        out_of_memory_seconds=out_of_memory,
        symptoms=symptoms,
    )


def measured(at: float = 80.0, **changes: object) -> Memory:
    """The memory of a plan that was measured at a time."""
    memory, _ = decide(Memory(), observed(sampled=10.0), 10.0, SETTINGS)
    memory, trigger = decide(memory, observed(sampled=at), at, SETTINGS)
    assert trigger is Trigger.SAMPLED
    return memory


def test_a_job_without_a_plan_is_planned_at_once_and_then_every_interval() -> None:
    memory, trigger = decide(Memory(), observed(None), 0.0, SETTINGS)
    assert trigger is Trigger.CREATED
    memory, trigger = decide(memory, observed(None), 59.0, SETTINGS)
    assert trigger is None
    _, trigger = decide(memory, observed(None), 60.0, SETTINGS)
    assert trigger is Trigger.CREATED


def test_a_manual_job_is_never_planned_and_an_initial_one_once() -> None:
    assert decide(Memory(), observed(None, optimize=Optimize.MANUAL), 0.0, SETTINGS)[1] is None
    initial = observed(1, optimize=Optimize.INITIAL, sampled=1000.0, step=10_000)
    assert decide(Memory(), initial, 2000.0, SETTINGS)[1] is None


def test_a_hundred_steps_are_enough() -> None:
    memory, trigger = decide(Memory(), observed(step=500, sampled=1.0), 1.0, SETTINGS)
    assert trigger is None
    memory, trigger = decide(memory, observed(step=599, sampled=5.0), 5.0, SETTINGS)
    assert trigger is None
    _, trigger = decide(memory, observed(step=600, sampled=6.0), 6.0, SETTINGS)
    assert trigger is Trigger.SAMPLED


def test_a_minute_is_enough() -> None:
    memory, _ = decide(Memory(), observed(sampled=10.0), 10.0, SETTINGS)
    memory, trigger = decide(memory, observed(sampled=69.9), 69.9, SETTINGS)
    assert trigger is None
    _, trigger = decide(memory, observed(sampled=70.0), 70.0, SETTINGS)
    assert trigger is Trigger.SAMPLED


def test_samples_from_before_the_plan_do_not_count() -> None:
    memory, trigger = decide(
        Memory(), observed(planned=100.0, sampled=99.0, step=10_000), 500.0, SETTINGS
    )
    assert trigger is None
    assert memory.first_step is None


def test_then_every_interval_while_samples_come() -> None:
    memory = measured(80.0)
    assert decide(memory, observed(sampled=139.0), 139.0, SETTINGS)[1] is None
    assert decide(memory, observed(sampled=140.0), 140.0, SETTINGS)[1] is Trigger.INTERVAL
    assert decide(memory, observed(sampled=80.0), 500.0, SETTINGS)[1] is None  # nothing is new


def test_after_a_change_of_servers_the_interval_is_five_minutes() -> None:
    memory = measured(80.0)
    after = observed(sampled=379.0, servers=True)
    assert decide(memory, after, 379.0, SETTINGS)[1] is None
    assert decide(memory, observed(sampled=380.0, servers=True), 380.0, SETTINGS)[1] is (
        Trigger.INTERVAL
    )


def test_a_new_plan_is_measured_anew() -> None:
    memory = measured(80.0)
    memory, trigger = decide(
        memory, observed(2, planned=90.0, sampled=95.0, step=700), 95.0, SETTINGS
    )
    assert trigger is None
    _, trigger = decide(memory, observed(2, planned=90.0, sampled=97.0, step=800), 97.0, SETTINGS)
    assert trigger is Trigger.SAMPLED


def test_a_symptom_is_looked_at_early_but_not_again_and_again() -> None:
    memory = measured(80.0)
    hot = (Trigger.HOT_SERVER,)
    assert decide(memory, observed(sampled=94.0, symptoms=hot), 94.0, SETTINGS)[1] is None
    memory, trigger = decide(memory, observed(sampled=95.0, symptoms=hot), 95.0, SETTINGS)
    assert trigger is Trigger.HOT_SERVER
    assert decide(memory, observed(sampled=96.0, symptoms=hot), 96.0, SETTINGS)[1] is None


def test_a_symptom_that_stays_does_not_put_off_the_interval() -> None:
    memory, asked = measured(80.0), []
    for now in range(81, 330):
        seen = observed(sampled=float(now), symptoms=(Trigger.IDLE_SERVERS,))
        memory, trigger = decide(memory, seen, float(now), SETTINGS)
        asked += [(now, trigger)] if trigger is not None else []
    assert [now for now, trigger in asked if trigger is Trigger.INTERVAL] == [140, 200, 260, 320]
    assert (95, Trigger.IDLE_SERVERS) in asked


def test_servers_that_were_just_changed_are_left_alone_even_if_hot() -> None:
    memory = measured(80.0)
    hot = observed(sampled=200.0, symptoms=(Trigger.HOT_SERVER,), servers=True)
    assert decide(memory, hot, 200.0, SETTINGS)[1] is None


def test_out_of_memory_does_not_wait_and_is_answered_once() -> None:
    memory, trigger = decide(Memory(), observed(out_of_memory=5.0), 5.1, SETTINGS)
    assert trigger is Trigger.OUT_OF_MEMORY
    assert decide(memory, observed(out_of_memory=5.0), 6.0, SETTINGS)[1] is None
    assert decide(memory, observed(out_of_memory=7.0), 7.1, SETTINGS)[1] is Trigger.OUT_OF_MEMORY


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 30),  # seconds until the next look
            st.booleans(),  # whether there was a sample
            st.integers(0, 60),  # steps
            st.booleans(),  # a symptom
            st.booleans(),  # out of memory
        ),
        max_size=80,
    )
)
def test_whatever_happens_plans_are_never_asked_for_more_often_than_the_reaction_time(
    looks: list[tuple[float, bool, int, bool, bool]],
) -> None:
    """But for a pod that ran out of memory, and the first measurement."""
    memory, now, step = Memory(), 0.0, 0
    sampled: float | None = None
    died: float | None = None
    asked: list[tuple[float, Trigger]] = []
    for seconds, sample, steps, symptom, oom in looks:
        now += seconds
        step += steps
        sampled = now if sample else sampled
        died = now if oom else died
        seen = observed(
            step=step,
            sampled=sampled,
            out_of_memory=died,
            symptoms=(Trigger.STRAGGLER,) if symptom else (),
        )
        memory, trigger = decide(memory, seen, now, SETTINGS)
        if trigger is not None:
            asked.append((now, trigger))
    calm = [when for when, trigger in asked if trigger is not Trigger.OUT_OF_MEMORY]
    assert sum(1 for _, trigger in asked if trigger is Trigger.SAMPLED) <= 1
    for earlier, later in pairwise(calm[1:]):
        assert later - earlier >= SETTINGS.reaction_seconds - 1e-6
