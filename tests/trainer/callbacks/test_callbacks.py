"""Killed processes of other people's loops go on from the memory of their agent."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}

HUGGING_FACE = """
import hashlib, logging, os, signal, sys
logging.basicConfig(level=logging.INFO)
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerCallback
from penstock.trainer.callbacks.hugging_face import Snapshots

out = sys.argv[1]
config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                    intermediate_size=8)
rows = [{"input_ids": torch.full((6,), n % 32), "labels": torch.tensor(n % 2)} for n in range(64)]
snapshots = Snapshots(out, every_steps=2)
resumed = snapshots.resume()

class Killed(TrainerCallback):
    def on_step_end(self, args, state, control, **parts):
        if state.global_step == 7:
            snapshots._snapshots._states.wait()  # that of step 6 is whole by now
            os.kill(os.getpid(), signal.SIGKILL)

print("resumes from", resumed, flush=True)

def train(name, folder, callbacks, resumed=None):
    torch.manual_seed(0)
    arguments = TrainingArguments(output_dir=folder, max_steps=12, per_device_train_batch_size=8,
                                  report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model=BertForSequenceClassification(config), args=arguments,
                      train_dataset=rows, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resumed)
    digest = hashlib.sha256()
    for tensor in trainer.model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    print(name, "ends with", trainer.state.global_step, digest.hexdigest(), flush=True)

if resumed is None:
    train("whole", out + "-whole", [])
    train("killed", out, [snapshots, Killed()])
else:
    train("resumed", out, [snapshots], resumed)
"""

LIGHTNING = """
import hashlib, logging, os, signal, sys
logging.basicConfig(level=logging.INFO)
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from penstock.trainer.callbacks.lightning import Snapshots

out = sys.argv[1]
snapshots = Snapshots(out, every_steps=4)
resumed = snapshots.resume()
print("resumes from", resumed, flush=True)

class Line(lightning.LightningModule):
    def __init__(self, killed):
        super().__init__()
        self.killed = killed
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        if self.killed and self.global_step == 6:
            snapshots._snapshots._states.wait()  # that of step 4 is whole by now
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(name, callbacks, killed=False, resumed=None):
    torch.manual_seed(0)
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=out, callbacks=callbacks)
    module = Line(killed)
    data = TensorDataset(torch.arange(128.).reshape(32, 4) / 128)
    trainer.fit(module, DataLoader(data, batch_size=8), ckpt_path=resumed)
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in module.state_dict().values()))
    print(name, "ends with", trainer.global_step, digest.hexdigest(), flush=True)

if resumed is None:
    train("whole", [])
    train("killed", [snapshots], killed=True)
else:
    train("resumed", [snapshots], resumed=resumed)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "program", "step"),
    [
        ("transformers", HUGGING_FACE, "snapshots/checkpoint-6"),
        ("lightning", LIGHTNING, "snapshots/step-4.ckpt"),
    ],
)
def test_a_killed_loop_goes_on_from_memory_to_the_same_model(
    tmp_path: Path, library: str, program: str, step: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", "--max-restarts", "1", "--", *command],
        capture_output=True,
        text=True,
        env=ENVIRON,
        timeout=240,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.findall(r"resumes from (\S+)", said) == ["None", f"{tmp_path}/out/{step}"]
    assert "exit code 137: it is started again" in said
    ends = dict(re.findall(r"(\w+) ends with (\d+ \w+)", said))
    assert ends.keys() == {"whole", "resumed"}
    assert ends["whole"].startswith("12 ")
    assert ends["resumed"] == ends["whole"], "bit by bit"
