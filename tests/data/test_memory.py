"""What a pod may still take, read from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

from penstock.data.memory import Memory, MemoryMeter, read_memory, room_for_batches

GB = 1 << 30
MEMINFO = (
    f"MemTotal:       {16 * GB // 1024} kB\nMemFree: 1 kB\nMemAvailable: {9 * GB // 1024} kB\n"
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def system(tmp_path: Path, cgroup: str) -> tuple[Path, Path]:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    root.mkdir()
    write(proc / "meminfo", MEMINFO)
    write(proc / "self/cgroup", cgroup)
    return root, proc


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    root, proc = system(tmp_path, "0::/\n")
    write(root / "memory.max", "max\n")
    write(root / "memory.current", "5\n")
    assert read_memory(root, proc) == Memory(9 * GB, 16 * GB)


def test_a_container_sees_its_own_cgroup_at_the_mount_point(tmp_path: Path) -> None:
    root, proc = system(tmp_path, "0::/kubepods/pod1/container\n")
    write(root / "memory.max", f"{4 * GB}\n")
    write(root / "memory.current", f"{3 * GB}\n")
    write(root / "memory.stat", f"anon 1\ninactive_file {GB}\nactive_file {GB // 2}\nshmem {GB}\n")
    assert read_memory(root, proc) == Memory(GB + GB + GB // 2, 4 * GB)


def test_the_least_of_all_levels_counts(tmp_path: Path) -> None:
    root, proc = system(tmp_path, "0::/pod/container\n")
    write(root / "pod/memory.max", f"{2 * GB}\n")
    write(root / "pod/memory.current", f"{GB}\n")
    write(root / "pod/container/memory.max", f"{3 * GB}\n")
    write(root / "pod/container/memory.current", f"{3 * GB - 5}\n")
    assert read_memory(root, proc) == Memory(5, 2 * GB)


def test_version_1(tmp_path: Path) -> None:
    root, proc = system(tmp_path, "9:name=systemd:/\n4:cpu,memory:/pod\n0::/\n")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "memory/memory.usage_in_bytes", f"{GB}\n")
    write(root / "memory/pod/memory.limit_in_bytes", f"{4 * GB}\n")
    write(root / "memory/pod/memory.usage_in_bytes", f"{2 * GB}\n")
    write(root / "memory/pod/memory.stat", f"total_inactive_file {GB}\ntotal_active_file 0\n")
    assert read_memory(root, proc) == Memory(3 * GB, 4 * GB)


def test_where_nothing_can_be_read_there_is_no_limit(tmp_path: Path) -> None:
    memory = read_memory(tmp_path / "none", tmp_path / "neither")
    assert memory.free == memory.limit >= 1 << 60


def test_it_is_read_once_a_second() -> None:
    now, read = [0.0], []

    def look() -> Memory:
        read.append(now[0])
        return Memory(len(read), 9)

    meter = MemoryMeter(look, lambda: now[0])
    assert [meter.measure().free, meter.measure().free] == [1, 1]
    now[0] = 1.0
    assert meter.measure().free == 2


def test_what_is_taken_already_is_part_of_the_room() -> None:
    assert room_for_batches(Memory(GB, 4 * GB), 3 * GB) == room_for_batches(Memory(4 * GB, GB), 0)
    assert room_for_batches(Memory(-5, GB), 0) == 0
