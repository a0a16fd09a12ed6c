"""Parameter servers for PyTorch programs: tables and dense parameters elsewhere, the loop here.

    from penstock.trainer import ps

    model = Net()                                     # with ps.Embedding for torch.nn.Embedding
    optimizer = ps.Optimizer(model, "adagrad", lr=0.05)
    with ps.session(model, optimizer, dataset_size=len(labels), batch_size=256) as session:
        for batch in session:                         # indices of samples
            loss = loss_function(model(features[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if session.is_chief:
            session.report(auc=evaluate(model))

Run as ``python train.py`` this trains alone, with the same rules in the same process. Run by
``penstock run`` in the workers of a job with parameter servers, any number of such processes train
one model, each at its own pace, and keep these promises while workers and servers come, go and die:

- Every batch of every epoch is applied once to every parameter of the model that survives.
- A batch sees the dense parameters as of its beginning and the rows that it looks up as of its
  forward pass; others change them meanwhile, by at most ``staleness`` updates if that is given.

    embedding.py  tables that are looked up on the servers, by number or by id
    optimizer.py  what is trained, and by which rule
    model.py      a PyTorch model as the servers see it
    session.py    the loop; batch.py is the batch in work
    transfer.py   values between the host and the devices of the model
    runner.py     what it stands on: a worker of servers, or alone.py, without any
    arguments.py  what all of them check of what they are given
"""

from __future__ import annotations

from penstock.parameter_server.schedule import Schedule
from penstock.trainer.elastic import DrainedError
from penstock.trainer.ps.embedding import DynamicEmbedding, Embedding
from penstock.trainer.ps.optimizer import Optimizer
from penstock.trainer.ps.session import Session, SessionError, session

__all__ = [
    "DrainedError",
    "DynamicEmbedding",
    "Embedding",
    "Optimizer",
    "Schedule",
    "Session",
    "SessionError",
    "session",
]
