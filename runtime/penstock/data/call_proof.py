"""Calls between the processes of a job, and their answers, proven without the token being sent.

A call carries, in place of a token, the time, a nonce, the digest of its body and an HMAC-SHA256
over these, its method and its path, with a key derived from the job's token. Whoever hears it can
neither make another nor repeat it: a server remembers the nonces of as long as it takes calls of.
An answer carries an HMAC over its status, its body and the nonce of its call, so that nobody else
answers in the server's place, and what a server says of its clock can be believed.

Times that are more than `MAX_SKEW_SECONDS` apart are refused, and so is a call from before the
server began, or from before what it remembers: the refusal says what time it is there, and the
caller tries again with that (`CallSigner.verify`). Memory is bounded by `MAX_NONCES`.

No clock is read but those that are given, and nothing is sent: `penstock.job.call_auth` and
`penstock.data.reporting` call, `penstock.data.call_guard` takes calls.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from penstock.data.keys import Purpose, derive_key

SCHEME: Final = "Penstock"
REPLY_HEADER: Final = "Penstock-Reply"
CLOCK_HEADER: Final = "Penstock-Clock"
"""With a refusal: microseconds since 1970 where the call arrived. It may be tried again."""
MAX_SKEW_SECONDS: Final = 300.0
MAX_NONCES: Final = 1 << 17

_NONCE_DIGITS: Final = 32
_MICRO: Final = 1_000_000
_REFUSED: Final = 401


class Verdict(Enum):
    """What to make of an answer."""

    TRUE = auto()  # it is the server's; or a refusal of somebody who cannot prove to be it
    AGAIN = auto()  # the server refuses the time or the nonce: make the call again
    FALSE = auto()  # it is not the server's


@dataclass(frozen=True, slots=True)
class SignedCall:
    """What goes with one call: the value of its Authorization header."""

    authorization: str
    nonce: str


class CallSigner:
    """Makes the proofs of one caller's calls; any thread may use it."""

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._key = derive_key(token, Purpose.CALL)
        self._reply_key = derive_key(token, Purpose.REPLY)
        self._clock = clock
        self._ahead = 0  # by so many microseconds the server's clock is

    def sign(self, method: str, target: str, body: bytes) -> SignedCall:
        """A fresh proof of a call; ``target``: its path and query, as they are sent."""
        at = int(self._clock() * _MICRO) + self._ahead
        nonce = secrets.token_hex(_NONCE_DIGITS // 2)
        digest = hashlib.sha256(body).hexdigest()
        proof = _proof(self._key, method, target, str(at), nonce, digest)
        return SignedCall(f"{SCHEME} {at}.{nonce}.{digest}.{proof}", nonce)

    def verify(
        self, call: SignedCall, status: int, body: bytes, reply: str | None, clock: str | None
    ) -> Verdict:
        """Whether an answer is to this call and of who holds the token.

        Args:
            call: what `sign` gave for it.
            status: of the answer.
            body: of the answer.
            reply: the header `REPLY_HEADER` of the answer.
            clock: the header `CLOCK_HEADER` of the answer.
        """
        if not _same(reply or "", _reply_proof(self._reply_key, call.nonce, status, clock, body)):
            return Verdict.TRUE if status == _REFUSED else Verdict.FALSE
        if status != _REFUSED or clock is None or not clock.isdecimal():
            return Verdict.TRUE
        self._ahead = int(clock) - int(self._clock() * _MICRO)
        return Verdict.AGAIN


@dataclass(frozen=True, slots=True)
class ProvenCall:
    """A call of somebody who holds the token.

    Attributes:
        nonce: of the call; its answer is bound to that.
        body_digest: what its body has to be, in hexadecimal digits.
        clock: where it is refused, what to say with `CLOCK_HEADER`.
    """

    nonce: str
    body_digest: str
    clock: str | None = None


class CallChecker:
    """Takes each call of a job once; for one thread or event loop."""

    def __init__(
        self,
        token: str,
        clock: Callable[[], float] | None = None,
        max_nonces: int = MAX_NONCES,
    ) -> None:
        """``clock``: seconds since 1970, which must not go back."""
        self._key = derive_key(token, Purpose.CALL)
        self._reply_key = derive_key(token, Purpose.REPLY)
        self._clock = clock or steady_clock()
        self._max_nonces = max_nonces
        self._floor = int(self._clock() * _MICRO)  # an earlier life may have taken what is older
        self._oldest: list[tuple[int, str]] = []  # a heap of the calls that were taken
        self._known: set[str] = set()

    def check(self, method: str, target: str, authorization: str) -> ProvenCall | None:
        """Who calls; None for somebody without the token. A call is taken but once."""
        scheme, _, rest = authorization.partition(" ")
        parts = rest.split(".")
        if scheme != SCHEME or len(parts) != 4 or not rest.isascii():
            return None
        at, nonce, digest, proof = parts
        if not _same(proof, _proof(self._key, method, target, at, nonce, digest)):
            return None
        now = int(self._clock() * _MICRO)
        self._forget(now - int(MAX_SKEW_SECONDS * _MICRO))
        said = int(at)  # it was made by one of us
        apart = abs(said - now) > MAX_SKEW_SECONDS * _MICRO
        if apart or said <= self._floor or nonce in self._known:
            return ProvenCall(nonce, digest, str(now))
        heapq.heappush(self._oldest, (said, nonce))
        self._known.add(nonce)
        while len(self._oldest) > self._max_nonces:
            self._floor = max(self._floor, self._drop_oldest())
        return ProvenCall(nonce, digest)

    def prove(self, call: ProvenCall, status: int, body: bytes) -> str:
        """What goes with the answer, as `REPLY_HEADER`."""
        return _reply_proof(self._reply_key, call.nonce, status, call.clock, body)

    def _forget(self, before: int) -> None:
        """Forget calls that would be refused for their time now."""
        while self._oldest and self._oldest[0][0] < before:
            self._drop_oldest()

    def _drop_oldest(self) -> int:
        at, nonce = heapq.heappop(self._oldest)
        self._known.discard(nonce)
        return at


def steady_clock() -> Callable[[], float]:
    """The time of day as it was now, from where it goes on evenly whatever the clock is set to."""
    began, at = time.monotonic(), time.time()
    return lambda: at + time.monotonic() - began


def _proof(key: bytes, *parts: str) -> str:
    return hmac.new(key, "\n".join(parts).encode(), "sha256").hexdigest()


def _reply_proof(key: bytes, nonce: str, status: int, clock: str | None, body: bytes) -> str:
    return _proof(key, nonce, str(status), clock or "", hashlib.sha256(body).hexdigest())


def _same(said: str, wanted: str) -> bool:
    return hmac.compare_digest(said.encode(), wanted.encode())
