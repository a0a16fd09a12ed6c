"""Which groups NCCL carries, and what is said about those that it cannot."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.group.backend_choice import (
    Backend,
    Choice,
    Device,
    Equipment,
    choose,
)
from penstock.trainer.group.devices import equipment

CPU = Device("cpu")


def gpu(number: int, machine: str = "m") -> Device:
    return Device("cuda", f"GPU-{machine}{number}", f"{machine}/0:{number:x}:0")


def has(*devices: Device, nccl: bool = True) -> Equipment:
    return Equipment(devices, nccl)


DEVICES = st.one_of(
    st.just(CPU),
    st.builds(gpu, st.integers(0, 3), st.sampled_from("mn")),
    st.builds(Device, st.just("cuda"), st.just(""), st.sampled_from(["", "m/cuda:0"])),
)
EQUIPMENT = st.builds(
    Equipment, st.lists(DEVICES, max_size=3, unique=True).map(tuple), st.booleans()
)
GROUPS = st.dictionaries(st.integers(0, 9), EQUIPMENT, min_size=1)


def test_members_with_a_gpu_each_use_nccl_and_those_on_cpus_gloo_without_a_word() -> None:
    assert choose({0: has(gpu(0)), 1: has(gpu(1)), 2: has(gpu(0, "n"))}) == Choice(Backend.NCCL)
    assert choose({0: has(CPU), 1: has(CPU, nccl=False)}) == Choice(Backend.GLOO)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {0: has(gpu(0)), 3: has(gpu(1)), 7: has(gpu(0)), 9: has(gpu(0))},
            "workers 0, 7 and 9 share one GPU, GPU-m0",
        ),
        (
            {0: has(gpu(0)), 1: has(gpu(0)), 2: has(gpu(1)), 3: has(gpu(1))},
            "workers 0 and 1 share one GPU, GPU-m0; workers 2 and 3 share one GPU, GPU-m1",
        ),
        ({0: has(gpu(0)), 1: has(CPU)}, "worker 1 has no GPU, as the others have"),
        ({4: has(CPU), 1: has(gpu(1)), 2: has(CPU)}, "workers 2 and 4 have no GPU"),
        ({0: has(gpu(0), CPU), 1: has(gpu(1), CPU)}, "workers 0 and 1 have gradients on the CPU"),
        ({0: has(gpu(0)), 1: has(gpu(1), nccl=False)}, "worker 1 has a PyTorch without NCCL"),
    ],
)
def test_what_nccl_cannot_do_falls_to_gloo_and_names_workers_and_device(
    members: dict[int, Equipment], words: str
) -> None:
    choice = choose(members)
    assert choice.backend is Backend.GLOO
    assert words in choice.warning


def test_two_slices_of_one_gpu_are_one_gpu_to_nccl() -> None:
    one = Device("cuda", "MIG-1", "boot/0:3b:0")
    assert choose({0: has(one), 1: has(Device("cuda", "MIG-2", "boot/0:3b:0"))}).warning
    assert not choose({0: has(one), 1: has(Device("cuda", "MIG-2", "other/0:3b:0"))}).warning


def test_a_member_of_a_release_before_leaves_it_to_the_first_members_devices() -> None:
    assert choose({0: has(gpu(0)), 1: None}) == Choice(Backend.NCCL)
    assert choose({0: has(CPU), 1: None}) == Choice(Backend.GLOO)
    assert choose({0: has(gpu(0), nccl=False), 1: None}) == Choice(Backend.GLOO)


@given(GROUPS)
def test_nccl_is_chosen_only_where_no_gpu_is_shared_and_every_gradient_is_on_one(
    members: dict[int, Equipment],
) -> None:
    choice = choose(members)
    devices = [(rank, device) for rank, member in members.items() for device in member.devices]
    shared = any(
        a.shares_gpu_with(b) for rank, a in devices for other, b in devices if rank != other
    )
    fit = all(member.all_on_gpus and member.nccl for member in members.values()) and not shared
    assert (choice.backend is Backend.NCCL) == fit
    # A group of CPUs is nothing to warn of, every other one that cannot use NCCL is.
    assert bool(choice.warning) == (not fit and any(m.has_gpu for m in members.values()))


@given(GROUPS, st.randoms())
def test_the_order_of_the_members_changes_nothing(
    members: dict[int, Equipment], dice: Random
) -> None:
    order = list(members)
    dice.shuffle(order)
    assert choose({rank: members[rank] for rank in order}).backend is choose(members).backend


@given(EQUIPMENT)
def test_what_a_member_says_arrives(member: Equipment) -> None:
    assert Equipment.from_message(member.as_message()) == member


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.sampled_from(["devices", "nccl"]), inner),
        ),
    )
)
def test_what_is_not_understood_counts_as_nothing_said(message: object) -> None:
    found = Equipment.from_message(message)
    assert found is None or found.as_message() == message


def test_a_gpu_is_named_by_uuid_and_by_its_place_in_the_machine() -> None:
    def properties(device: torch.device) -> object:
        return SimpleNamespace(
            uuid=f"aa-{device.index}",
            pci_domain_id=0,
            pci_bus_id=0x3B + device.index,
            pci_device_id=0,
        )

    cuda = [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)]
    found = equipment(cuda, nccl=True, properties=properties)
    assert [device.uuid for device in found.devices] == ["GPU-aa-0", "GPU-aa-1"]
    assert found.devices[0].place.endswith("/0:3b:0")
    assert not found.devices[0].shares_gpu_with(found.devices[1])
    assert found.all_on_gpus


def test_a_pytorch_that_knows_no_uuid_names_machine_and_index() -> None:
    found = equipment([torch.device("cuda", 1)], nccl=True, properties=lambda _: object())
    assert found.devices[0].uuid == ""
    assert found.devices[0].place.endswith("/cuda:1")


def test_a_model_on_the_cpu_asks_no_driver() -> None:
    assert equipment([torch.device("cpu")]).devices == (CPU,)


@pytest.mark.gpu
def test_the_gpu_that_is_here_has_a_uuid_and_is_itself() -> None:
    [here] = equipment([torch.device("cuda", 0)]).devices
    assert here.uuid.startswith("GPU-")
    assert here.shares_gpu_with(here)
