"""Service-account tokens: whose they are, for whom, and until when."""

from __future__ import annotations

import pytest

from cluster.tests.registry.running import Clock, run
from cluster.tests.registry.samples import pod
from penstock_cluster.registry import Api, ApiError, Engine, EngineOptions
from penstock_cluster.registry.tokens import TokenError


def test_a_token_names_its_account_until_it_expires() -> None:
    clock = Clock()

    async def scenario(engine: Engine, api: Api) -> None:
        reply = await api.create(
            "serviceaccounts",
            {"spec": {"expirationSeconds": 600}},
            "default",
            name="default",
            subresource="token",
        )
        token = reply["status"]["token"]
        user = engine.tokens.user_of(token)
        assert user.name == "system:serviceaccount:default:default"
        assert "system:serviceaccounts:default" in user.groups
        clock.advance(601)
        with pytest.raises(TokenError, match="expired"):
            engine.tokens.user_of(token)

    run(scenario, EngineOptions(clock=clock))


def test_tampering_other_audiences_and_deleted_accounts_are_found_out() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        await api.create("serviceaccounts", {"metadata": {"name": "a"}}, "default")
        token, _ = engine.tokens.issue("default", "a")
        other, _ = engine.tokens.issue("default", "a", audiences=("vault",))
        with pytest.raises(TokenError, match="invalid for the target audiences"):
            engine.tokens.user_of(other)
        head, body, signature = token.split(".")
        for forged in (f"{head}.{body}.{signature[:-2]}xx", f"{head}.{body}x.{signature}", "x", ""):
            with pytest.raises(TokenError, match="invalid bearer token"):
                engine.tokens.user_of(forged)
        await api.delete("serviceaccounts", "a", "default")
        await api.create("serviceaccounts", {"metadata": {"name": "a"}}, "default")
        with pytest.raises(TokenError, match="deleted"):
            engine.tokens.user_of(token)

    run(scenario)


def test_a_token_bound_to_a_pod_dies_with_it() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        created = await api.create("pods", pod("p"), "default")
        bound = {"kind": "Pod", "name": "p", "uid": created["metadata"]["uid"]}
        token, _ = engine.tokens.issue("default", "default", bound_to=bound)
        assert engine.tokens.user_of(token).extra["authentication.kubernetes.io/pod-name"] == ["p"]
        await api.delete("pods", "p", "default", grace_period_seconds=0)
        with pytest.raises(TokenError, match="pod has been deleted"):
            engine.tokens.user_of(token)

    run(scenario)


def test_too_short_a_token_is_refused() -> None:
    async def scenario(engine: Engine, api: Api) -> None:
        with pytest.raises(ApiError, match="may not specify a duration less than 10 minutes"):
            await api.create(
                "serviceaccounts",
                {"spec": {"expirationSeconds": 1}},
                "default",
                name="default",
                subresource="token",
            )

    run(scenario)
