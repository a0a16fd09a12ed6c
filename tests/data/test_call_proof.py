"""Calls with proofs in place of the token: each is taken once, in its time, unchanged."""

from __future__ import annotations

import pytest

from penstock.data.call_proof import (
    MAX_SKEW_SECONDS,
    CallChecker,
    CallSigner,
    SignedCall,
    Verdict,
    steady_clock,
)

TARGET = "/v1/data/consumer"
BODY = b"body"


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Ends:
    """A caller and a server, each with a clock of its own."""

    def __init__(self, ahead: float = 0.0, **options: int) -> None:
        self.here, self.there = Clock(), Clock(1e9 + ahead)
        self.checker = CallChecker("token", self.there, **options)
        self.there.now += 1
        self.here.now += 1
        self.signer = CallSigner("token", self.here)

    def call(self, signed: SignedCall | None = None) -> tuple[bool, SignedCall, Verdict]:
        """Whether a call is taken, the call, and what the caller makes of the answer."""
        signed = signed or self.signer.sign("POST", TARGET, BODY)
        call = self.checker.check("POST", TARGET, signed.authorization)
        assert call is not None
        status = 200 if call.clock is None else 401
        proof = self.checker.prove(call, status, b"answer")
        found = self.signer.verify(signed, status, b"answer", proof, call.clock)
        return call.clock is None, signed, found


def test_a_call_is_taken_once_and_its_answer_believed() -> None:
    ends = Ends()
    taken, signed, verdict = ends.call()
    assert (taken, verdict) == (True, Verdict.TRUE)
    again, _, verdict = ends.call(signed)
    assert (again, verdict) == (False, Verdict.AGAIN)
    assert ends.call()[0] is True


@pytest.mark.parametrize("ahead", [-86_400.0, -301.0, -299.0, 299.0, 301.0, 86_400.0])
def test_a_caller_whose_clock_is_wrong_is_told_and_goes_on(ahead: float) -> None:
    ends = Ends(ahead)
    taken, _, verdict = ends.call()
    if not taken:
        assert verdict is Verdict.AGAIN
        assert ends.call()[0] is True
    for _ in range(3):
        ends.here.now += 1
        ends.there.now += 1
        assert ends.call()[0] is True


@pytest.mark.parametrize(
    ("method", "target"), [("GET", TARGET), ("POST", "/v1/agent"), ("POST", TARGET + "?x=1")]
)
def test_a_call_is_good_for_its_method_and_path_alone(method: str, target: str) -> None:
    ends = Ends()
    signed = ends.signer.sign("POST", TARGET, BODY)
    assert ends.checker.check(method, target, signed.authorization) is None


@pytest.mark.parametrize("at", range(4))
def test_no_part_of_a_proof_can_be_changed(at: int) -> None:
    ends = Ends()
    scheme, _, rest = ends.signer.sign("POST", TARGET, BODY).authorization.partition(" ")
    parts = rest.split(".")
    parts[at] = parts[at][:-1] + ("1" if parts[at][-1] != "1" else "2")
    assert ends.checker.check("POST", TARGET, f"{scheme} {'.'.join(parts)}") is None


@pytest.mark.parametrize(
    "said", ["", "Penstock", "Penstock ", "Penstock ...", "Bearer token", "Penstock 1.2.3.4.5"]
)
def test_what_is_no_proof_is_refused(said: str) -> None:
    assert Ends().checker.check("POST", TARGET, said) is None


def test_a_call_of_before_the_server_began_is_refused() -> None:
    """It may have been taken by its earlier life, of which it knows nothing."""
    ends = Ends()
    signed = ends.signer.sign("POST", TARGET, BODY)
    later = CallChecker("token", Clock(ends.there.now + 5))
    call = later.check("POST", TARGET, signed.authorization)
    assert call is not None
    assert call.clock is not None


def test_what_is_remembered_is_bounded_and_nothing_forgotten_is_taken_again() -> None:
    ends = Ends(max_nonces=10)
    made = []
    for _ in range(50):
        taken, signed, _ = ends.call()
        assert taken
        made.append(signed)
        ends.here.now += 0.01
        ends.there.now += 0.01
    assert len(ends.checker._known) == len(ends.checker._oldest) == 10
    assert not any(ends.call(signed)[0] for signed in made)


def test_what_is_too_old_to_be_taken_is_not_remembered() -> None:
    ends = Ends()
    ends.call()
    ends.there.now += MAX_SKEW_SECONDS + 1
    ends.call()
    assert len(ends.checker._known) <= 1


def test_an_answer_is_good_for_its_call_status_body_and_clock_alone() -> None:
    ends = Ends()
    signed, other = (ends.signer.sign("POST", TARGET, BODY) for _ in range(2))
    call = ends.checker.check("POST", TARGET, signed.authorization)
    assert call is not None
    proof = ends.checker.prove(call, 200, b"answer")
    verify = ends.signer.verify
    assert verify(signed, 200, b"answer", proof, None) is Verdict.TRUE
    assert verify(other, 200, b"answer", proof, None) is Verdict.FALSE
    assert verify(signed, 200, b"Answer", proof, None) is Verdict.FALSE
    assert verify(signed, 409, b"answer", proof, None) is Verdict.FALSE
    assert verify(signed, 200, b"answer", proof, "5") is Verdict.FALSE
    assert verify(signed, 200, b"answer", None, None) is Verdict.FALSE
    wrong = CallChecker("other", ends.there).prove(call, 200, b"answer")
    assert verify(signed, 200, b"answer", wrong, None) is Verdict.FALSE


def test_nobody_without_the_token_sets_a_callers_clock() -> None:
    ends = Ends()
    signed = ends.signer.sign("POST", TARGET, BODY)
    said = str(int((ends.here.now + 3600) * 1e6))
    assert ends.signer.verify(signed, 401, b"", "no proof", said) is Verdict.TRUE
    assert ends.call()[0] is True


def test_a_servers_clock_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = steady_clock()
    before = clock()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert clock() >= before
