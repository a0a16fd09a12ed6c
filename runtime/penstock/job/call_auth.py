"""How an httpx client of the job calls the trainer: each call proven, each answer checked."""

from __future__ import annotations

from collections.abc import Generator

import httpx

from penstock.data.call_proof import CLOCK_HEADER, REPLY_HEADER, CallSigner, Verdict


class CallAuth(httpx.Auth):
    """Proofs in place of the token (`penstock.data.call_proof`), for one client.

    An answer that is not the trainer's is as none: `httpx.ReadError`.
    """

    requires_request_body = True
    requires_response_body = True

    def __init__(self, token: str) -> None:
        self._signer = CallSigner(token)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a call, and once more where only its time or its nonce was refused."""
        target = request.url.raw_path.decode("latin-1")
        for _ in range(2):
            call = self._signer.sign(request.method, target, request.content)
            request.headers["Authorization"] = call.authorization
            response = yield request
            found = self._signer.verify(
                call,
                response.status_code,
                response.content,
                response.headers.get(REPLY_HEADER),
                response.headers.get(CLOCK_HEADER),
            )
            if found is Verdict.FALSE:
                raise httpx.ReadError(
                    f"an answer (status {response.status_code}) without proof that it is of this "
                    "job's trainer",
                    request=request,
                )
            if found is Verdict.TRUE:
                return
