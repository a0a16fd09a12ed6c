"""Who is removed when room is needed."""

from __future__ import annotations

from cluster.tests.scheduler.objects import node, pod
from penstock_cluster.scheduler.nodes.inventory import Inventory, Occupant
from penstock_cluster.scheduler.preemption import choose_preemption


def inventory(*placed: tuple[str, dict], nodes: int = 2, cpu: str = "2") -> Inventory:
    found = Inventory()
    for number in range(1, nodes + 1):
        found.put_node(node(f"n{number}", cpu=cpu))
    for where, there in placed:
        found.put_pod(Occupant.of(there), where)
    return found


def choose(wanted: dict, there: Inventory, **options):
    return choose_preemption(wanted, Occupant.of(wanted), there, **options)


def test_the_least_important_go_first() -> None:
    there = inventory(
        ("n1", pod("middle", cpu="2", priority=5)), ("n2", pod("low", cpu="2", priority=1))
    )
    chosen = choose(pod("high", cpu="1", priority=10), there)
    assert chosen.node_name == "n2"
    assert [victim.name for victim in chosen.victims] == ["low"]


def test_nobody_goes_for_an_equal() -> None:
    there = inventory(
        ("n1", pod("a", cpu="2", priority=10)), ("n2", pod("b", cpu="2", priority=10))
    )
    assert choose(pod("c", cpu="1", priority=10), there) is None


def test_no_more_go_than_needed() -> None:
    there = inventory(*(("n1", pod(f"p{i}", cpu="500m", priority=i)) for i in range(4)), nodes=1)
    chosen = choose(pod("high", cpu="1", priority=10), there)
    assert sorted(victim.name for victim in chosen.victims) == ["p0", "p1"]


def test_fewer_victims_win_among_equals() -> None:
    there = inventory(
        ("n1", pod("a", cpu="1", priority=1)),
        ("n1", pod("b", cpu="1", priority=1)),
        ("n2", pod("c", cpu="2", priority=1)),
    )
    assert choose(pod("high", cpu="2", priority=10), there).node_name == "n2"


def test_the_most_recently_started_goes_among_equals() -> None:
    there = inventory(
        ("n1", pod("old", cpu="2", priority=1, start_time="2030-01-01T00:00:00Z")),
        ("n2", pod("young", cpu="2", priority=1, start_time="2030-01-01T00:10:00Z")),
    )
    assert choose(pod("high", cpu="2", priority=10), there).node_name == "n2"


def test_nothing_helps_on_a_node_that_the_pod_may_not_use() -> None:
    there = inventory(("n1", pod("low", cpu="2")), nodes=1)
    wanted = pod("high", cpu="1", priority=10, nodeSelector={"zone": "a"})
    assert choose(wanted, there) is None


def test_nothing_helps_a_pod_that_is_larger_than_the_node() -> None:
    there = inventory(("n1", pod("low", cpu="2")), nodes=1)
    assert choose(pod("high", cpu="3", priority=10), there) is None


def test_a_budget_is_respected_where_there_is_a_choice() -> None:
    there = inventory(("n1", pod("guarded", cpu="2")), ("n2", pod("costly", cpu="2", priority=5)))
    chosen = choose(
        pod("high", cpu="2", priority=10),
        there,
        is_protected=lambda victim: victim.name == "guarded",
    )
    assert chosen.node_name == "n2"


def test_room_kept_for_an_equal_is_not_taken() -> None:
    there = inventory(("n1", pod("low", cpu="1")), nodes=1)
    there.nominate(Occupant.of(pod("first", cpu="2", priority=10)), "n1")
    assert choose(pod("second", cpu="1", priority=10), there) is None
    assert choose(pod("urgent", cpu="2", priority=20), there).node_name == "n1"
