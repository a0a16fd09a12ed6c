"""What strangers can repeat is said once in a while, with how often it happened."""

from __future__ import annotations

import logging
import resource

import pytest

from penstock.base.descriptors import descriptor_limit, raise_descriptor_limit
from penstock.base.log_limit import LogLimit, RepetitionFilter

logger = logging.getLogger("penstock.test")


def test_the_first_line_comes_at_once_and_the_others_as_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    limit = LogLimit(10.0, lambda: now[0])
    for number in range(5):
        limit.log(logger, logging.WARNING, "call %d", number)
    now[0] = 10.0
    limit.log(logger, logging.WARNING, "call %d", 5)
    now[0] = 30.0
    limit.log(logger, logging.WARNING, "call %d", 6)
    assert caplog.messages == ["call 0", "call 5 (and 4 more like this)", "call 6"]


def test_a_library_repeats_itself_once(caplog: pytest.LogCaptureFixture) -> None:
    library = logging.getLogger("penstock.test.library")
    own = RepetitionFilter(3600.0)
    library.addFilter(own)
    try:
        for number in range(5):
            library.warning("bad request %d", number)
            library.warning("another thing")
            library.error("a fault")
    finally:
        library.removeFilter(own)
    assert caplog.messages.count("bad request 0") == 1
    assert caplog.messages.count("another thing") == 1
    assert caplog.messages.count("a fault") == 5
    assert len(caplog.messages) == 7


def test_the_limit_of_descriptors_is_raised_within_what_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        assert descriptor_limit() == min(soft, 256)
        assert raise_descriptor_limit() == descriptor_limit() >= min(soft, 65536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
