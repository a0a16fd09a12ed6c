"""Names that a rule uses without anybody having declared them."""

from __future__ import annotations

import pytest

from penstock_cluster.registry.admission.cel import CelError, compiled

RULE = frozenset(["oldSelf", "self"])


@pytest.mark.parametrize(
    "rule",
    [
        "self.all(k, k.matches('^foo$'))",
        'self.text == "other \\" foo"',
        "type(self) == int ? self > 0 : has(oldSelf.foo)",
        "oldSelf.all(was, self.exists(now, now.type == was.type))",
        "self.items.map(item, item.name != '', item.name).filter(n, n == 'a') == []",
        "self.{}".format("bar.foo"),
        "{'foo': 1}.foo == self",
    ],
)
def test_every_name_is_known(rule: str) -> None:
    compiled(rule).require(RULE)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "foo == 1",
            (
                "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n"
                " | foo == 1\n | ^"
            ),
        ),
        (
            "self.foo == 'foo' &&\n self == foo",
            (
                "ERROR: <input>:2:10: undeclared reference to 'foo' (in container '')\n"
                " |  self == foo\n | .........^"
            ),
        ),
        (
            "self.all(k, k == kk)",
            (
                "ERROR: <input>:1:18: undeclared reference to 'kk' (in container '')\n"
                " | self.all(k, k == kk)\n | .................^"
            ),
        ),
    ],
)
def test_a_name_is_unknown(rule: str, message: str) -> None:
    with pytest.raises(CelError) as refused:
        compiled(rule).require(RULE)
    assert str(refused.value) == message
