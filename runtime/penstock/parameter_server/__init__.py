"""Parameter servers: where the parameters of an asynchronously trained model live.

A job with parameter servers has three kinds of processes, and each has a folder here. None of the
three imports another; what they share is beside them:

    spec.py        what a model consists of, and which partition each of its parameters is in
    schedule.py    how the learning rate goes on from batch to batch
    buckets.py     where ids are in a table that is keyed by them, and what their rows begin with
    arrays.py      which arrays a partition has, in which order
    layout.py      which server owns which partition
    protocol.py    what servers and workers say to the job's trainer
    wire.py        what workers and servers say to a server; connection.py is the caller's end

``control/``, in the trainer's process, without I/O and without a clock:

    coordinator.py   reports in, orders out: what the trainer calls
    machine.py       one step for every event; the only place that changes the state
    state.py         all that is known and decided, and in which phase it is
    decisions/       what is decided with a layout (training.py), to the next one (moving.py) and
                     without any (starting.py)
    replies.py       what each process is told; invariants.py what always holds
    records/         what the state consists of: servers, workers, revisions, checkpointing, ...

``server/``, one parameter server (``penstock ps``):

    process.py     its sockets, its threads and its life
    shard.py       its share of the parameters: contents.py is what it holds,
                     request_handler.py what it answers, order_executor.py what it is told to do
    storage/       store.py has its parameters: space.py the rows of tables, dynamic_space.py those
                     that are keyed by ids, update_rule.py the optimizer that changes them;
                     migration.py, snapshots.py, staleness.py, lock.py
    requests.py, settings.py

``worker/``, in a training process:

    worker.py      what its training loop calls
    exchange.py    its dealings with the trainer, by trainer_client.py; slots.py: what it leased
    client.py      all servers as one
    duties.py      what is asked of one worker for all, the chief; chief.py is how it is done
    checkpoint.py  the file of a whole model; rekeying.py: its ids in another division

Nothing here imports PyTorch; a server starts in a fraction of a second and has no use for it.
Training scripts use `penstock.trainer.ps`.
"""
