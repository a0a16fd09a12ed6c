"""Parameter servers: where the parameters of an asynchronously trained model live.

What all sides share:

    spec.py      what a model consists of, and which partition each of its parameters is in
    arrays.py    which arrays a partition has, in which order
    layout.py    which server owns which partition
    wire.py      what workers, servers and the chief say to a server; line.py is the caller's end
    protocol.py  what servers and workers say to the job's trainer

One server (``penstock ps``):

    server.py    its sockets, its threads and its life
    holding.py   what it answers in which stage, and what orders make of that
    store.py     its parameters and the optimizer that changes them
    questions.py, building.py, snapshots.py, staleness.py, lock.py, settings.py

The trainer:

    fleet.py     reports in, orders out
    course.py    what it decides: when to halt, move, restore and save
    roster.py, crew.py, orders.py, saves.py, survivors.py, transitions.py, audits.py, ...
                 what it decides that from

A worker:

    worker.py    its dealings with the trainer; slots.py is what it has leased
    client.py    all servers as one
    chief.py     what one worker does for all; checkpoint.py is the file of a whole model

Nothing here imports PyTorch; a server starts in a fraction of a second and has no use for it.
Training scripts use `penstock.trainer.ps`.
"""
