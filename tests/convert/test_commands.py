"""Command lines of launchers become those of Penstock's agent."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.convert.program import Setting, agent_command
from penstock.convert.shell_text import commands

LAUNCHED = {
    "torchrun --nproc-per-node=8 train.py --lr 1": "--nproc-per-node=8 -- train.py --lr 1",
    "torchrun --nproc_per_node 4 -m my.train -x": "--nproc-per-node=4 -- -m my.train -x",
    "torchrun --nnodes=2 --rdzv-endpoint=a:1 train.py": "--nproc-per-node=1 -- train.py",
    "torchrun --no-python ./run --fast": "--nproc-per-node=1 -- ./run --fast",
    "torchrun -- train": "--nproc-per-node=1 -- python train",
    "/opt/bin/torchrun --standalone --nproc-per-node=gpu a.py": "--nproc-per-node=gpu -- a.py",
    "python3 -u -m torch.distributed.run --nproc_per_node=2 a.py": "--nproc-per-node=2 -- a.py",
    "python -m torch.distributed.launch --use_env a.py": "--nproc-per-node=1 -- a.py",
    "dlrover-run --network-check --nproc_per_node=2 a.py": "--nproc-per-node=2 -- a.py",
    "python -m dlrover.trainer.torch.elastic_run a.py": "--nproc-per-node=1 -- a.py",
    "accelerate launch --num_processes 8 --num_machines 2 a.py": "--nproc-per-node=4 -- a.py",
    "accelerate launch --mixed_precision=bf16 a.py": "--nproc-per-node=1 -- a.py",
    "deepspeed --num_gpus 2 a.py -m --ds c.json": "--nproc-per-node=2 -- a.py -m --ds c.json",
    "torchrun --of-tomorrow=3 a.py": "--nproc-per-node=1 -- a.py",
    "python train.py": "-- python train.py",
    "penstock run -- python train.py": "-- python train.py",
}


@pytest.mark.parametrize("before", LAUNCHED)
def test_a_launcher_is_left_out(before: str) -> None:
    program = agent_command(before.split(), Setting())
    assert program.command == ["penstock", "run", *LAUNCHED[before].split()]


SHELL = {
    "torchrun --nproc-per-node=2 a 'x  y'": (
        "exec penstock run --nproc-per-node=2 -- python a 'x  y'"
    ),
    "cd /x && torchrun a.py $ARGS": "cd /x && exec penstock run --nproc-per-node=1 -- a.py $ARGS",
    "A=1 torchrun --nproc-per-node=$N a.py": "A=1 penstock run --nproc-per-node=$N -- a.py",
    "torchrun a.py | tee log": "penstock run --nproc-per-node=1 -- a.py | tee log",
    "torchrun \\\n --nnodes=2 \\\n a.py": "exec penstock run --nproc-per-node=1 -- a.py",
    "# torchrun b.py\n(sleep 1; torchrun a.py)": (
        "# torchrun b.py\n(sleep 1; penstock run --nproc-per-node=1 -- a.py)"
    ),
    "echo torchrun; torchrun a.py 2>&1 >log\n": (
        "echo torchrun; exec penstock run --nproc-per-node=1 -- a.py 2>&1 >log\n"
    ),
    "if true; then torchrun a.py; fi": "if true; then penstock run --nproc-per-node=1 -- a.py; fi",
    'torchrun "$SCRIPT" -x': 'exec penstock run --nproc-per-node=1 -- "$SCRIPT" -x',
}


@pytest.mark.parametrize("before", SHELL)
def test_in_a_shell_all_else_stays_as_it_was_written(before: str) -> None:
    program = agent_command(["bash", "-eo", "pipefail", "-c", before, "zero"], Setting())
    assert program.command == ["bash", "-eo", "pipefail", "-c", SHELL[before], "zero"]


def test_a_shell_without_a_launcher_runs_under_the_agent() -> None:
    words = ["sh", "-c", "cd /x && python train.py"]
    assert agent_command(words, Setting()).command == ["penstock", "run", "--", *words]
    ranks = agent_command(words, Setting(ranks=True)).command
    assert ranks == ["penstock", "run", "--nproc-per-node=1", "--", *words]


def test_what_the_launcher_was_told_is_known() -> None:
    setting = Setting(processes="auto", gpus=8, variables={"NODE_NUM": 6})
    words = ["torchrun", "--nnodes=2:${NODE_NUM}", "--max_restarts=4", "--rdzv_id", "x", "a.py"]
    program = agent_command(words, setting)
    assert program.command == ["penstock", "run", "--nproc-per-node=8", "--", "a.py"]
    assert program.nodes == (2, 6)
    assert program.max_restarts == 4
    assert [(name, value) for name, value, _ in program.dropped] == [("--rdzv-id", "x")]


def test_options_of_accelerate_reach_the_program_by_its_environment() -> None:
    words = "accelerate launch --mixed_precision bf16 --cpu --gradient_accumulation_steps=2 a.py"
    program = agent_command(words.split(), Setting())
    assert program.environment == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_CPU": "true",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "2",
    }


def test_a_script_that_expects_its_local_rank_is_told_of() -> None:
    program = agent_command(["python", "-m", "torch.distributed.launch", "a.py"], Setting())
    assert any("LOCAL_RANK" in one for one in program.asked)


REFUSED = {
    "torchrun --of-tomorrow a.py": "write it as --of-tomorrow=VALUE",
    "torchrun --nproc-per-node=2": "no script follows",
    "torchrun --nnodes": "a value must follow",
    "torchrun --nproc-per-node=many a.py": "must be a number, gpu, cpu or auto",
    "torchrun --nproc-per-node=0 a.py": "must be from 1",
    "numactl -N 0 torchrun a.py": "torchrun stands behind another program",
    "mpirun -np 4 python a.py": "mpirun",
    "accelerate launch --config_file x.yaml a.py": "--config_file: a file that is not read here",
    "accelerate launch --use_fsdp a.py": "FullyShardedDataParallelPlugin",
    "accelerate launch --num_processes=$N --num_machines=2 a.py": "write both as numbers",
}


@pytest.mark.parametrize("before", REFUSED)
def test_what_has_no_correspondence_is_refused(before: str) -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSED[before])):
        agent_command(before.split(), Setting())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torchrun a.py && torchrun b.py", "two launchers"),
        ("torchrun a.py 'x", "not closed"),
        ("numactl -N 0 torchrun a.py", "behind another program"),
    ],
)
def test_what_no_shell_text_can_mean_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        agent_command(["sh", "-c", text], Setting())


WORDS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1))


@given(WORDS)
def test_quoted_words_are_read_as_shlex_reads_them(words: list[str]) -> None:
    text = shlex.join(words)
    found = [word for one in commands(text) for word in (*one.before, *one.words)]
    assert [word.value for word in found] == words
    assert [text[word.start : word.end] for word in found] == [word.raw for word in found]
