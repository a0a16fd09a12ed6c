"""A step's questions change nothing; what changes the state is asked for by name."""

from __future__ import annotations

from penstock.parameter_server.control.decisions.decision import Decision
from tests.parameter_server.control.test_moves import running
from tests.trainer.control.test_questions import written_out


def test_questions_of_a_step_do_not_write() -> None:
    world = running()
    servers = world.trainer.servers
    chief = servers.state.workers.chief_id
    assert chief is not None
    world.trainer.servers.end_worker(chief.rank, chief.incarnation)
    before = written_out(servers.state)
    decision = Decision(servers.state, world.trainer.state.ledger, world.now)
    assert not decision.is_kept(), "another worker can save"
    assert written_out(servers.state) == before
    successor = decision.chief
    assert successor is not None
    assert successor.id != chief
    assert servers.state.workers.chief_id == chief
    decision.elect()
    assert servers.state.workers.chief_id == successor.id
