"""Keys take turns, whatever each of them asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zluda_stack.gateway.fair_queue import FairQueue

_keys = st.sampled_from("abcd")


def drained(queue: FairQueue[tuple[str, int]]) -> list[tuple[str, int]]:
    found = []
    while (taken := queue.take(lambda item: item)) is not None:
        found.append(taken[0])
    return found


def filled(keys: list[str]) -> FairQueue[tuple[str, int]]:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number, key in enumerate(keys):
        queue.append(key, (key, number))
    return queue


@given(st.lists(_keys))
def test_all_come_once_and_in_order_within_their_key(keys: list[str]) -> None:
    order = drained(filled(keys))
    assert sorted(order, key=lambda item: item[1]) == list(enumerate_keys(keys))
    for key in set(keys):
        numbers = [number for owner, number in order if owner == key]
        assert numbers == sorted(numbers)


def enumerate_keys(keys: list[str]) -> list[tuple[str, int]]:
    return [(key, number) for number, key in enumerate(keys)]


@given(st.lists(_keys, min_size=1))
def test_no_key_is_served_twice_while_another_waits(keys: list[str]) -> None:
    order = [key for key, _ in drained(filled(keys))]
    for at, key in enumerate(order):
        others_wait = set(order[at + 1 :]) - {key}
        if at + 1 < len(order) and others_wait:
            assert order[at + 1] != key


@given(st.lists(_keys, min_size=1), st.data())
def test_who_leaves_is_not_served(keys: list[str], data: st.DataObject) -> None:
    queue = filled(keys)
    key, number = data.draw(st.sampled_from(enumerate_keys(keys)))
    queue.remove(key, (key, number))
    assert len(queue) == len(keys) - 1
    assert queue.waiting(key) == keys.count(key) - 1
    assert (key, number) not in drained(queue)


def test_one_that_cannot_go_now_does_not_hold_up_those_behind_it() -> None:
    queue = filled(["a", "a", "b"])
    taken = queue.take(lambda item: "found" if item != ("a", 0) else None)
    assert taken == (("a", 1), "found")
    assert queue.take(lambda item: None if item[0] == "a" else item) == (("b", 2), ("b", 2))
    assert len(queue) == 1


def test_one_that_comes_back_is_the_next_of_its_key() -> None:
    queue = filled(["a", "a"])
    queue.prepend("a", ("a", 9))
    assert drained(queue) == [("a", 9), ("a", 0), ("a", 1)]
