"""Parameter servers: where the parameters of an asynchronously trained model live.

    spec.py      what a model consists of, and which partition each of its parameters is in
    layout.py    which server owns which partition
    store.py     the parameters of one server and the optimizer that changes them
    wire.py      what workers and servers say to each other on a data connection
    protocol.py  what both say to the job's trainer
    server.py    one server (``penstock ps``)
    fleet.py     the trainer's side: reports in, orders out
    course.py    what it decides: when to halt, move, restore and save
    roster.py, crew.py, orders.py, saves.py, survivors.py, transitions.py, audits.py
                 what it decides that from
    client.py    a worker's connections to all servers
    checkpoint.py  the file that holds a whole model, whatever the number of servers

Nothing here imports PyTorch; a server starts in a fraction of a second and has no use for it.
Training scripts use `penstock.trainer.ps`.
"""
