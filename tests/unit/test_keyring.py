"""The file of keys: what is written is read again, and nothing half right is taken for a key."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zluda_stack import keyring
from zluda_stack.keyring import Key

DIGEST = "ab" * 32

_limits = st.none() | st.integers(min_value=1, max_value=10**15 - 1)
_keys = st.builds(
    Key,
    digest=st.binary(min_size=32, max_size=32),
    name=st.from_regex(keyring.NAME, fullmatch=True),
    expires=st.none()
    | st.datetimes(
        min_value=datetime(1970, 1, 1),
        max_value=datetime(9999, 1, 1),
        timezones=st.just(timezone.utc),
    ).map(lambda time: time.replace(microsecond=0)),
    per_minute=_limits,
    tokens_per_day=_limits,
)


@given(st.lists(_keys, unique_by=lambda key: key.name, max_size=20))
def test_what_was_written_is_what_is_read(keys: list[Key]) -> None:
    text = "".join(f"{keyring.line(key)}\n" for key in keys)
    assert keyring.parse(text) == tuple(keys)


@given(st.text())
@example("\x0c" + DIGEST)
@example(DIGEST + "\x85" + DIGEST)
def test_any_text_is_keys_or_a_valueerror(text: str) -> None:
    with contextlib.suppress(ValueError):
        for key in keyring.parse(text):
            assert key.digest.hex() in text
            assert keyring.parse(keyring.line(key)) == (key,)


@given(st.text(alphabet=st.characters(exclude_categories=["Zs", "Cc"]), min_size=9))
def test_an_error_tells_nothing_of_what_may_be_a_key(secret: str) -> None:
    with pytest.raises(ValueError, match="line 1") as told:
        keyring.parse(f"zs-{secret}")
    assert secret not in str(told.value)


def test_a_line_that_a_shell_wrote_is_a_key_without_limits() -> None:
    assert keyring.parse(f"{DIGEST}\n") == (Key(digest=bytes.fromhex(DIGEST)),)
    assert keyring.line(Key(digest=bytes.fromhex(DIGEST))) == DIGEST


def test_blank_lines_and_comments_are_no_keys() -> None:
    assert [key.name for key in keyring.parse(f"\n# mine\n  \n{DIGEST} name=a\n")] == ["a"]


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ("expire=2027-01-01T00:00:00Z", "may stand"),
        ("per-minute=1 per-minute=100", "may stand"),
        ("laptop", "may stand"),
        ("-", "may stand"),
        ("per-minute=0", "above 0"),
        ("per-minute=1e3", "above 0"),
        ("tokens-per-day=", "above 0"),
        ("tokens-per-day=-5", "above 0"),
        ("per-minute=٣", "above 0"),
        ("expires=2027-01-01", "no time like"),
        ("expires=", "no time like"),
        ("name=", "small letters"),
        ("name=a/b", "small letters"),
        ('name=a"', "small letters"),
        ("name=" + "x" * 65, "small letters"),
    ],
)
def test_a_limit_or_a_name_that_is_not_right_is_refused(attributes: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"line 2.*{re.escape(problem)}"):
        keyring.parse(f"{'cd' * 32}\n{DIGEST} {attributes}\n")


def test_two_keys_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="a stands twice"):
        keyring.parse(f"{DIGEST} name=a\n{'cd' * 32} name=a\n")
