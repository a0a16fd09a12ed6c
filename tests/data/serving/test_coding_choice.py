"""Which coding a batch is sent in: never a slower one, by what is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.data.serving.coding_choice import Known, choose
from penstock.data.transport.codings import Coding

GAIN = 0.7
SIZE = 10 << 20
seconds = st.floats(0, 1e-7)
known = st.builds(Known, seconds=seconds, share=st.floats(0, 1))


def chosen(link: float, made: float = 0.0, **of: Known) -> Coding | None:
    return choose(SIZE, link, made, {Coding(name): one for name, one in of.items()}, GAIN)


def test_the_smaller_one_is_chosen_where_the_link_is_slow() -> None:
    quick, small = Known(0.5e-9, 0.4), Known(3e-9, 0.1)
    assert chosen(1e-7, dictionary=quick, zstd=small) is Coding.ZSTD
    assert chosen(4e-9, dictionary=quick, zstd=small) is Coding.DICTIONARY


def test_what_was_not_tried_is_tried() -> None:
    assert chosen(1e-8, dictionary=Known(1e-9, 0.3), zstd=Known()) is Coding.ZSTD


def test_nothing_is_chosen_where_making_takes_longer_than_the_link() -> None:
    assert chosen(8e-9, made=1.0, dictionary=Known(), zstd=Known()) is None


@given(
    link=seconds,
    made=st.floats(0, 1),
    codings=st.dictionaries(st.sampled_from(list(Coding)), known),
)
def test_what_is_chosen_is_quicker_than_none_and_than_the_other(
    link: float, made: float, codings: dict[Coding, Known]
) -> None:
    found = choose(SIZE, link, made, codings, GAIN)

    def apace(one: Known) -> float:
        return max(made + SIZE * one.seconds, one.share * SIZE * link)

    if found is None:
        return
    plain = max(made, SIZE * link)
    assert apace(codings[found]) < GAIN * plain
    for one in codings.values():
        alone = SIZE * one.seconds + one.share * SIZE * link
        if alone < GAIN * SIZE * link:
            assert apace(codings[found]) <= apace(one)
