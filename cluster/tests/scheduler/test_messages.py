"""What a person reads when a pod stays pending."""

from __future__ import annotations

from cluster.tests.scheduler.objects import node, pod
from penstock_cluster.scheduler.nodes.fit import unschedulable_message
from penstock_cluster.scheduler.nodes.inventory import Inventory, Occupant
from penstock_cluster.scheduler.placement import Placement


def message(wanted: dict, *nodes: dict, may_preempt: bool = True) -> str:
    inventory = Inventory()
    for each in nodes:
        inventory.put_node(each)
    refusals = Placement(inventory).refusals(wanted, Occupant.of(wanted))
    return unschedulable_message(refusals, may_preempt=may_preempt)


def test_each_reason_is_counted() -> None:
    gpu_taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [
        node("n1", cpu="1"),
        node("n2", taints=[gpu_taint]),
        node("n3", unschedulable=True),
    ]
    assert message(pod(cpu="2"), *nodes) == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {gpu: yes}, "
        "1 node(s) were unschedulable. preemption: 0/3 nodes are available: "
        "3 Preemption is not helpful for scheduling."
    )


def test_several_shortages_of_one_node_are_all_named() -> None:
    text = message(pod(cpu="8", memory="100Gi"), node("n1"), node("n2"))
    assert text.startswith("0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.")


def test_no_victims() -> None:
    inventory = Inventory()
    inventory.put_node(node("n1", cpu="2"))
    inventory.put_pod(Occupant.of(pod("other", cpu="2")), "n1")
    wanted = pod(cpu="1")
    refusals = Placement(inventory).refusals(wanted, Occupant.of(wanted))
    assert unschedulable_message(refusals, may_preempt=True).endswith(
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert unschedulable_message(refusals, may_preempt=False).endswith(
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_without_nodes() -> None:
    assert message(pod()) == "no nodes available to schedule pods"
