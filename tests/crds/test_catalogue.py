"""Condition types and reasons fit the API, and condition reasons are told apart from types."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest

from penstock.base.enums import JobState, Role
from penstock.base.fields import CAMEL_CASE, DNS_LABEL
from penstock.crds.conditions import (
    ConditionReason,
    JobCondition,
    JobReason,
    ScaleCondition,
    ScaleReason,
)
from penstock.crds.events import EventReason


@pytest.mark.parametrize(
    "catalogue",
    [JobCondition, JobReason, ScaleCondition, ScaleReason, EventReason, JobState],
    ids=lambda catalogue: catalogue.__name__,
)
def test_every_word_is_camel_case_of_at_most_63_characters(catalogue: type[StrEnum]) -> None:
    for word in catalogue:
        assert re.fullmatch(CAMEL_CASE, word)
        assert len(word) <= 63


@pytest.mark.parametrize(
    ("reasons", "conditions"),
    [(JobReason, JobCondition), (ScaleReason, ScaleCondition)],
    ids=["job", "scale"],
)
def test_every_reason_is_set_on_conditions_that_exist(
    reasons: type[ConditionReason], conditions: type[StrEnum]
) -> None:
    for reason in reasons:
        assert reason.conditions
        for condition in reason.conditions:
            name, _, status = condition.partition("=")
            assert name in set(conditions), reason
            assert status in ("True", "False", "Unknown"), reason


@pytest.mark.parametrize("catalogue", [JobReason, ScaleReason, EventReason])
def test_every_reason_is_explained_in_a_sentence(
    catalogue: type[ConditionReason | EventReason],
) -> None:
    for reason in catalogue:
        assert reason.meaning.endswith("."), reason
        assert catalogue(str(reason)) is reason


def test_every_event_is_normal_or_a_warning() -> None:
    assert {reason.severity for reason in EventReason} == {"Normal", "Warning"}


def test_a_status_has_room_for_every_condition() -> None:
    assert max(len(JobCondition), len(ScaleCondition)) <= 16


def test_the_reasons_of_a_scale_that_the_design_promises_exist() -> None:
    promised = {
        "FixedBySpec",
        "PinnedByUser",
        "StaleJob",
        "OutOfRange",
        "OverQuota",
        "JobFinished",
        "NewerScale",
        "NotPrepared",
    }
    assert promised <= {reason.value for reason in ScaleReason}


def test_a_role_in_names_is_a_dns_label_and_no_two_are_alike() -> None:
    names = [role.in_names for role in Role]
    assert all(re.fullmatch(DNS_LABEL, name) for name in names)
    assert len(set(names)) == len(names)
