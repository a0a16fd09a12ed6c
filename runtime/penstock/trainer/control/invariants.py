"""What holds of a `State` after every event, whatever happened before."""

from __future__ import annotations

from penstock.job.protocol import Phase
from penstock.trainer.control.model.agents import MAX_AGENTS
from penstock.trainer.control.model.state import State


def validate_state(state: State) -> None:
    """Raises AssertionError: the state contradicts itself. For tests, after every step."""
    _validate_data(state)
    _validate_group(state)
    _validate_members(state)
    _validate_replica_groups(state)
    _validate_agents(state)
    _validate_refusal(state)


def _validate_data(state: State) -> None:
    data, order, ledger = state.data, state.order, state.ledger
    known = {data is not None, order is not None, ledger is not None}
    assert len(known) == 1, f"data {data}, order {order}, ledger {ledger}"
    if data is None or order is None or ledger is None:
        assert not state.audits, f"audits of unknown data: {state.audits}"
        assert state.group_leases is None, "leases of unknown data"
        return
    ledger.state.check_invariants()
    assert order == data.order(order.slots_per_step), "the order is of other data"
    assert ledger.state.options.total_slots == order.total_slots, "the ledger is of other data"
    assert state.rendezvous.slots_per_step == order.slots_per_step, "groups have other steps"
    assert ledger.state.options.skip_bad == state.facts.skip_bad, "the spec was not heard"
    for epoch, audit in state.audits.items():
        assert epoch == audit.epoch, f"audit of epoch {audit.epoch} under {epoch}"


def _validate_group(state: State) -> None:
    rendezvous, shares = state.rendezvous, state.shares.current
    group = rendezvous.group
    assert rendezvous.min_workers == state.least_members, "the spec was not heard"
    if group is None:
        assert not rendezvous.training, "nobody trains"
        return
    assert group.members, f"group {group.number} is empty"
    assert 0 <= group.source < len(group.members), f"nobody has the model of {group.number}"
    assert len({member.id.rank for member in group.members}) == len(group.members), "a rank twice"
    assert len(rendezvous.group_members) == len(group.members)
    assert min(shares, default=0) >= 0, f"shares {shares}"
    if len(shares) == len(group.members):
        assert sum(shares) == sum(group.shares), f"shares {shares} are not a whole step"
    _validate_leases(state)


def _validate_leases(state: State) -> None:
    leases, ledger = state.group_leases, state.ledger
    if leases is None or ledger is None or ledger.quarantine:
        return  # a lease ends where a slot is in quarantine
    slots, total = leases.order.slots_per_step, leases.order.total_slots
    for lease in ledger.leases(leases.holder):
        assert lease.stop % slots == 0 or lease.stop == total, f"{lease} ends within a step"


def _validate_members(state: State) -> None:
    for rank, member in state.rendezvous.members.by_rank.items():
        assert rank == member.id.rank, f"{member.id} under {rank}"
        ready = member.report.phase is Phase.READY
        assert ready == (member.ready_since is not None), f"{member.id} waits since {member}"
        failed = member.report.phase is Phase.FAILED
        assert failed == (member.failed_since is not None), f"{member.id} failed since {member}"
        assert member.report.launched == state.rendezvous.members.launched, "two kinds of members"
    assert state.data is not None or not state.holders.active, "slots of no data are leased"
    if state.servers.active:
        assert state.holders.active or state.ledger is None or state.servers.recovering


def _validate_replica_groups(state: State) -> None:
    groups = state.replica_groups
    assert groups.pods > 1 or not groups.by_number, "a pod alone needs no rendezvous"
    expected = groups.members_of(state.expected)
    assert state.rendezvous.expected == expected, "sessions are waited for that cannot come"
    for number, one in groups.by_number.items():
        own = range(number * groups.pods, (number + 1) * groups.pods)
        assert set(one.members.by_rank) <= set(own), f"{one.members.by_rank.keys()} in {own}"
        if one.group is None:
            continue
        ranks = [member.id.rank for member in one.group.members]
        assert ranks == list(own), f"a world of a part of a replica group: {ranks} of {own}"


def _validate_agents(state: State) -> None:
    agents = state.agents.agents
    assert len(agents) <= MAX_AGENTS
    for (role, rank), agent in agents.items():
        assert (role, rank) == (agent.report.role, agent.report.rank), (
            f"{agent} under {role} {rank}"
        )


def _validate_refusal(state: State) -> None:
    refusal = state.copies.refusal
    fatal = [problem for problem in state.problems.current() if problem.fatal]
    assert len(fatal) <= 1, f"refused for {fatal}"
    assert refusal == (fatal[0] if fatal else None), "the job is refused, and nothing says why"
    assert refusal is not None or not state.copies.shown, "a refusal is shown that is not there"
