"""A session without a trainer: the plain training loop, and what it refuses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from penstock.crds import environment
from penstock.data import Buckets
from penstock.job import atomic_file
from penstock.job.folder_mark import FolderMark, Writer
from penstock.trainer import elastic
from penstock.trainer.checkpoint import CheckpointDir
from penstock.trainer.checkpoint_file import CheckpointError
from tests.data.planes import eventually
from tests.trainer.small_disk import fill, read_only, small_disk

FEATURES = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
TARGETS = (FEATURES.sum(1) > 0).long()


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.TRAINER_ADDRESS, environment.CHECKPOINT_DIR, environment.STEP_LOG):
        monkeypatch.delenv(name, raising=False)


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def start(**changes: object) -> tuple[nn.Module, elastic.Session]:
    model, optimizer = parts()
    fields = {"dataset_size": 50, "global_batch": 16, "epochs": 3, "slots_per_step": 4, **changes}
    # Each test names its own fields.
    return model, elastic.session(model=model, optimizer=optimizer, **fields)  # type: ignore[arg-type]


def train(
    model: nn.Module,
    session: elastic.Session,
    seen: Callable[[elastic.Step], None] = lambda step: None,
) -> None:
    with session:
        for step in session:
            for micro in step:
                micro.backward(
                    functional.cross_entropy(model(FEATURES[micro.indices]), TARGETS[micro.indices])
                )
            assert step.commit()
            seen(step)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_dataset_whose_length_changes_between_epochs_is_named() -> None:
    data = list(range(50))
    model, session = start(dataset_size=data)

    def shrink(step: elastic.Step) -> None:
        if step.number == 3:  # the last step of the first epoch
            data.pop()

    with pytest.raises(elastic.SessionError, match=r"dataset_size: 49 in epoch 1; .* with 50"):
        train(model, session, shrink)
    assert session.committed_steps == 4, "the first epoch was whole"


def test_the_step_log_holds_every_step_and_its_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "steps-0-0.jsonl"
    monkeypatch.setenv(environment.STEP_LOG, str(path.parent))
    train(*start(slots_per_step=3))
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["step"] for entry in entries] == list(range(12))
    assert all(entry["world"] == 1 for entry in entries)
    assert sum(entries[0]["losses"].values()) > sum(entries[-2]["losses"].values()) > 0


def test_a_step_log_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "steps-0-0.jsonl").mkdir()
    monkeypatch.setenv(environment.STEP_LOG, str(tmp_path))
    train(*start())
    [record] = [record for record in caplog.records if "no step log" in record.getMessage()]
    assert "Is a directory" in record.getMessage()


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_the_update_does_not_depend_on_how_a_step_is_cut(slots: int) -> None:
    whole, session = start(slots_per_step=1)
    train(whole, session)
    cut, session = start(slots_per_step=slots)
    train(cut, session)
    torch.testing.assert_close(weights(cut), weights(whole), rtol=1e-5, atol=1e-6)


def test_it_is_the_same_as_a_loop_written_by_hand() -> None:
    model, session = start()
    batches: list[torch.Tensor] = []
    train(model, session, lambda step: batches.append(torch.from_numpy(step.samples)))
    plain, optimizer = parts()
    for batch in batches:
        optimizer.zero_grad()
        functional.cross_entropy(plain(FEATURES[batch]), TARGETS[batch]).backward()
        optimizer.step()
    assert [len(batch) for batch in batches] == [16, 16, 16, 2] * 3
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-5, atol=1e-6)


def test_alone_and_unless_told_otherwise_it_is_a_plain_loop_to_the_last_bit() -> None:
    model, session = start(slots_per_step=None)
    batches: list[torch.Tensor] = []
    sizes: list[list[int]] = []

    def seen(step: elastic.Step) -> None:
        batches.append(torch.from_numpy(step.samples))
        sizes.append([len(micro) for micro in step.micros])

    train(model, session, seen)
    plain, optimizer = parts()
    for batch in batches:
        optimizer.zero_grad()
        functional.cross_entropy(plain(FEATURES[batch]), TARGETS[batch]).backward()
        optimizer.step()
    assert sizes == [[16], [16], [16], [2]] * 3, "a step is one batch"
    assert torch.equal(weights(model), weights(plain))
    assert session._state.audit.totals()["samples_seen"] == 150
    assert session._state.audit.totals()["samples_repeated"] == 0


def test_a_small_batch_needs_no_number_of_slots() -> None:
    model, session = start(slots_per_step=None, global_batch=4, epochs=1)
    train(model, session)
    assert session.finished


def test_slots_that_the_script_names_stay_alone_too() -> None:
    model, session = start(slots_per_step=4, epochs=1)
    counts: list[int] = []
    train(model, session, lambda step: counts.append(len(step.micros)))
    assert counts == [4, 4, 4, 2], "the last step has two samples"


def test_every_sample_counts_once_per_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    model, session = start()
    train(model, session)
    assert session.finished
    assert session.is_chief
    session.report(accuracy=0.5)
    mark, _, figures = capsys.readouterr().out.strip().partition(" ")
    assert mark == "penstock-result"
    result = json.loads(figures)
    assert result["samples_seen"] == 150
    assert result["samples_lost"] == result["samples_repeated"] == 0
    assert result["accuracy"] == 0.5


def test_random_numbers_in_a_micro_batch_depend_on_the_slot_alone() -> None:
    draws: list[list[float]] = []
    for _ in range(2):
        model, session = start(epochs=1)
        found: list[float] = []
        with session:
            for step in session:
                for micro in step:
                    found.append(torch.rand(()).item())
                    micro.backward(model(FEATURES[micro.indices]).sum())
                step.commit()
        draws.append(found)
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == len(draws[0])


def test_a_run_is_taken_up_from_its_newest_checkpoint(tmp_path: Path) -> None:
    undisturbed, session = start()
    train(undisturbed, session)

    def stop(step: elastic.Step) -> None:
        if step.number == 6:
            raise InterruptedError

    model, session = start(checkpoint_dir=tmp_path, checkpoint_every_steps=2)
    with pytest.raises(InterruptedError):
        train(model, session, stop)
    numbers: list[int] = []
    model, session = start(checkpoint_dir=tmp_path, checkpoint_every_steps=2)
    train(model, session, lambda step: numbers.append(step.number))
    assert numbers == list(range(6, 12))
    torch.testing.assert_close(weights(model), weights(undisturbed), rtol=0, atol=0)
    assert session._state.audit.totals()["samples_seen"] == 150
    assert session._state.audit.totals()["samples_repeated"] == 0


def test_a_checkpoint_of_another_dataset_is_refused(tmp_path: Path) -> None:
    model, session = start(checkpoint_dir=tmp_path)
    train(model, session)
    model, session = start(checkpoint_dir=tmp_path, dataset_size=49)
    with pytest.raises(
        elastic.SessionError, match="dataset_size: 49; the state to take over has 50"
    ):
        train(model, session)


def test_a_disk_that_becomes_read_only_ends_no_training_and_none_that_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(step: elastic.Step) -> None:
        numbers.append(step.number)
        if step.number == 7:
            raise InterruptedError

    with small_disk(tmp_path / "disk", 512) as disk, ExitStack() as fault:
        model, session = start(checkpoint_dir=disk, checkpoint_every_steps=2)
        folder = session._checkpoints
        assert folder is not None
        troubles: list[str] = []

        def break_and_mend(step: elastic.Step) -> None:
            if step.number == 3:
                folder.wait()
                fault.enter_context(read_only(disk))
            if step.number == 9:
                eventually(lambda: folder.trouble)
                troubles.append(folder.trouble)
                fault.close()

        train(model, session, break_and_mend)
        assert "Read-only file system" in troubles[0]
        assert caplog.text.count("Read-only file system") == 1, "it is said once"
        newest = disk / "step-000000000012.penstock"
        newest.unlink()  # it is there: once the disk is mended, what waited is written
        for path in disk.glob("step-00000000001*.penstock"):
            path.unlink()
        numbers: list[int] = []
        with read_only(disk):
            model, session = start(checkpoint_dir=disk, checkpoint_every_steps=2)
            with pytest.raises(InterruptedError):
                train(model, session, stop)
        assert numbers[0] == 2, "it goes on from what is there"


def test_a_read_only_folder_in_which_nothing_ever_was_is_refused_at_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk, read_only(disk):
        _, session = start(checkpoint_dir=disk)
        with pytest.raises(CheckpointError, match="Read-only file system; it must be a folder"):
            session.__enter__()


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    model, session = start(checkpoint_dir=tmp_path)
    train(model, session)
    other = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    session = elastic.session(
        model=other,
        optimizer=optimizer,
        dataset_size=50,
        global_batch=16,
        epochs=3,
        slots_per_step=4,
        checkpoint_dir=tmp_path,
    )
    words = r"model: the state .* of another one: .*0\.weight.*; delete the old checkpoints"
    with pytest.raises(elastic.SessionError, match=words), session:
        next(iter(session))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)


def steps_down(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)


def session_of(
    folder: Path, make: Callable[[nn.Module], torch.optim.Optimizer], schedule: Any
) -> tuple[nn.Module, elastic.Session]:
    model, _ = parts()
    optimizer = make(model)
    return model, elastic.session(
        model=model,
        optimizer=optimizer,
        scheduler=schedule(optimizer),
        dataset_size=50,
        global_batch=16,
        epochs=3,
        slots_per_step=4,
        checkpoint_dir=folder,
    )


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "words"),
    [
        (adam, cosine, "optimizer: Adam; the state to take over is one of SGD: delete the old"),
        (sgd, steps_down, "scheduler: StepLR; the state to take over is one of CosineAnnealingLR"),
    ],
)
def test_a_checkpoint_of_another_optimizer_or_schedule_is_refused_by_name(
    tmp_path: Path, optimizer: Any, scheduler: Any, words: str
) -> None:
    train(*session_of(tmp_path, sgd, cosine))
    _, session = session_of(tmp_path, optimizer, scheduler)
    with pytest.raises(elastic.SessionError, match=words), session:
        next(iter(session))


def test_a_checkpoint_of_another_release_of_pytorch_is_named_and_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "1.0.0")
        train(*start(checkpoint_dir=tmp_path))
    _, session = start(checkpoint_dir=tmp_path)
    with session:
        assert list(session) == []
    assert "of step 12 from" in caplog.text
    assert "was written with PyTorch 1.0.0, and this is" in caplog.text


def test_another_build_of_pytorch_and_another_name_of_a_class_are_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = (type(name, (nn.Linear,), {})(2, 2) for name in ("Before", "After"))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", f"{torch.__version__.partition('+')[0]}+other")
        train(*start(extra={"own": before}, checkpoint_dir=tmp_path))
    _, session = start(extra={"own": after}, checkpoint_dir=tmp_path)
    with session:
        assert list(session) == []
    assert "was written with" not in caplog.text


def test_what_a_program_does_not_take_up_any_more_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(*session_of(tmp_path, sgd, cosine))
    model, _ = parts()
    session = elastic.session(
        model=model,
        optimizer=sgd(model),
        dataset_size=50,
        global_batch=16,
        epochs=3,
        slots_per_step=4,
        checkpoint_dir=tmp_path,
    )
    with session:
        assert list(session) == []
    assert "scheduler: the state to take over has it, and this program does not" in caplog.text


def test_the_folder_of_a_job_that_runs_is_refused_at_the_start_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_file, "FolderMark", partial(FolderMark, dead_seconds=1.0))
    other = Writer("u", "job default/other (uid u, on node-7)", "another machine", 1, "1")
    mark = FolderMark(tmp_path, other, beat_seconds=0.1)
    mark.claim()
    (tmp_path / "step-000000000003.penstock").write_bytes(b"theirs")
    _, session = start(checkpoint_dir=tmp_path)
    words = r"checkpoint_dir: .*: job default/other \(uid u, on node-7\) .*; name another check"
    with pytest.raises(CheckpointError, match=words):
        session.__enter__()
    assert (tmp_path / "step-000000000003.penstock").read_bytes() == b"theirs"
    mark.close()


def test_a_job_that_came_at_the_same_time_keeps_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = CheckpointDir(tmp_path, keep=1, write_seconds=0.3)
    monkeypatch.setattr(elastic, "open_folder", lambda *_: patient)
    other = Writer("u", "job default/other (uid u, on node-7)", "another machine", 1, "1")
    mark = FolderMark(tmp_path, other, beat_seconds=0.1)
    model, session = start(checkpoint_dir=tmp_path, checkpoint_every_steps=2)

    def comes(step: elastic.Step) -> None:
        if step.number == 0:
            mark.claim()
            (tmp_path / "step-000000000001.penstock").write_bytes(b"theirs")

    with pytest.raises(CheckpointError, match=r"on disk .* default/other .*'s; name another check"):
        train(model, session, comes)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000000001.penstock"]
    mark.close()


def test_a_checkpoint_of_another_version_is_named_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, session = start(checkpoint_dir=tmp_path)
    train(model, session)
    for path in tmp_path.glob("step-*"):
        path.write_bytes(path.read_bytes().replace(b"PNSTKCP1", b"PNSTKCP7", 1))
    numbers: list[int] = []
    model, session = start(checkpoint_dir=tmp_path)
    train(model, session, lambda step: numbers.append(step.number))
    assert numbers[0] == 0
    assert "step-000000000012.penstock: of format 7, and this release reads 1" in caplog.text


def test_a_step_that_is_not_committed_is_an_error() -> None:
    _, session = start()
    with session, pytest.raises(elastic.SessionError, match="step 0 was not committed"):
        list(session)


def test_a_micro_batch_that_was_not_trained_on_is_an_error() -> None:
    model, session = start()
    with session:
        step = next(iter(session))
        for micro in step:
            model(FEATURES[micro.indices]).sum().backward()
        with pytest.raises(elastic.SessionError, match=r"micro-batches \[0, 1, 2, 3\]"):
            step.commit()


def test_a_step_that_was_left_early_is_an_error() -> None:
    model, session = start()
    with session:
        step = next(iter(session))
        micro = next(iter(step))
        micro.backward(model(FEATURES[micro.indices]).sum())
        with pytest.raises(elastic.SessionError, match="3 of its micro-batches were not taken"):
            step.commit()


def test_committing_twice_is_an_error() -> None:
    model, session = start()
    with session:
        step = next(iter(session))
        for micro in step:
            micro.backward(model(FEATURES[micro.indices]).sum())
        assert step.commit()
        with pytest.raises(elastic.SessionError, match="committed already"):
            step.commit()


@pytest.mark.parametrize("changes", [{"epochs": 0}, {"global_batch": 0}, {"slots_per_step": 17}])
def test_a_wrong_argument_is_refused_by_name(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        start(**changes)


def test_the_schedule_goes_on_with_each_step_and_is_taken_up(tmp_path: Path) -> None:
    def run(epochs: int) -> torch.optim.lr_scheduler.LRScheduler:
        model, optimizer = parts()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)
        session = elastic.session(
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            dataset_size=50,
            global_batch=25,
            epochs=epochs,
            checkpoint_dir=tmp_path,
        )
        train(model, session)
        return scheduler

    assert run(2).last_epoch == 4
    assert run(2).last_epoch == 4, "the second run did not take up the schedule"


def test_further_state_is_saved_as_the_loop_left_it(tmp_path: Path) -> None:
    class Counter:
        steps = 0

        def state_dict(self) -> dict[str, int]:
            return {"steps": self.steps}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.steps = state["steps"]

    def run() -> Counter:
        counter = Counter()
        model, session = start(extra={"counter": counter}, checkpoint_dir=tmp_path)

        def count(step: elastic.Step) -> None:
            counter.steps += 1

        train(model, session, count)
        return counter

    assert run().steps == 12
    assert run().steps == 12


LENGTHS = [1 + index % 30 for index in range(50)]


def test_steps_of_like_length_are_a_sessions_too(tmp_path: Path) -> None:
    buckets = Buckets.of(LENGTHS, (8, 16))
    steps: list[list[int]] = []

    def seen(step: elastic.Step) -> None:
        steps.append(step.samples.tolist())

    train(*start(buckets=buckets, checkpoint_dir=tmp_path), seen)
    assert len(steps) == 3 * 4
    for epoch in range(3):
        taken = steps[4 * epoch : 4 * epoch + 4]
        assert sorted(itertools.chain(*taken)) == list(range(50))
        numbers = [{int(n) for n in buckets.numbers[step]} for step in taken]
        assert sum(len(one) > 1 for one in numbers) <= 2
    with pytest.raises(elastic.SessionError, match="buckets: none; the state to take over has"):
        train(*start(checkpoint_dir=tmp_path, epochs=3))


def test_a_session_refuses_buckets_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="tokens is set"):
        start(buckets=Buckets.of(LENGTHS, (8,), 100))
    with pytest.raises(ValueError, match="of 50 samples; the dataset has 49"):
        start(buckets=Buckets.of(LENGTHS, (8,)), dataset_size=49)


def test_a_slot_that_is_computed_twice_is_refused() -> None:
    model, session = start()
    with session:
        step = next(iter(session))
        micro = next(iter(step))
        micro.backward(model(FEATURES[micro.indices]).sum())
        # Every parameter has its gradient by then.
        before = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
        with pytest.raises(elastic.SessionError, match="slot 0 of step 0 in epoch 0 was computed"):
            micro.backward(model(FEATURES[micro.indices]).sum())
        after = [parameter.grad for parameter in model.parameters()]
    # Every parameter has its gradient by then.
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))  # type: ignore[arg-type]


def test_a_full_disk_under_the_step_log_takes_nothing_from_a_training_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps-0-0.jsonl").symlink_to("/dev/full")
    monkeypatch.setenv(environment.STEP_LOG, str(tmp_path))
    model, session = start()
    train(model, session)
    assert session.finished


def test_a_training_goes_on_where_no_checkpoint_can_be_written_and_ends_well_when_one_can(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        filler = fill(disk)
        model, session = start(checkpoint_dir=disk, checkpoint_every_steps=2)
        seen = []

        def make_room(step: elastic.Step) -> None:
            seen.append(step.number)
            if step.number == 9:
                filler.unlink()

        train(model, session, make_room)
        assert seen == list(range(12))
        assert session.finished
        assert (disk / "step-000000000012.penstock").exists()
        assert not list(disk.glob(".*.tmp"))


def test_a_trained_model_that_cannot_be_saved_is_an_error_at_the_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        fill(disk)
        patient = CheckpointDir(disk, write_seconds=0.3)
        monkeypatch.setattr(elastic, "open_folder", lambda *_: patient)
        model, session = start(checkpoint_dir=disk, checkpoint_every_steps=2)
        seen = []
        with pytest.raises(CheckpointError, match=r"the trained model is not on disk .*make room"):
            train(model, session, lambda step: seen.append(step.number))
        assert seen == list(range(12))
