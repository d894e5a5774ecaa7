"""The settings as their type `zluda_stack.settings.Settings` describes them, for reading."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Literal, cast

import msgspec
from msgspec import Struct, inspect

from zluda_stack import units
from zluda_stack.settings import Settings

# What compose/.env says for the same (ZLUDA_STACK_ACCEPT_CUDA_EULA=yes), and people type.
_WORDS = {"yes": True, "no": False, "on": True, "off": False}


class WrongValue(Exception):
    """A value that its setting does not take; says what was expected and what was found."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")


class Setting(Struct, frozen=True):
    """One setting: what it is for, what it takes (`expected`, in words).

    `flag` is False for one that the command line has no option for; `amount` is True for a
    number that takes a unit, such as 32k.
    """

    key: str
    help: str
    kind: Literal["text", "number", "switch"]
    expected: str
    choices: tuple[str, ...]
    optional: bool
    flag: bool
    amount: bool

    def convert(self, value: object, *, lenient: bool) -> object:
        """`value` as the setting's type; raises WrongValue.

        `lenient` also takes the text form of numbers and switches, as flags and environment
        variables have only text. Empty text means None where the setting may be None.
        """
        if value == "" and self.optional:
            return None
        if isinstance(value, str) and not _printable(value):
            raise WrongValue(self.expected, f"{value!a}, which has characters that no text has")
        given = value
        if self.amount and isinstance(value, str) and value[-1:].isalpha():
            given = units.amount(value) or value
        if self.kind == "switch" and lenient and isinstance(value, str):
            given = _WORDS.get(value.lower(), value)
        try:
            return msgspec.convert(given, _types()[self.key], strict=not lenient)
        except msgspec.ValidationError as error:
            raise WrongValue(self.expected, in_words(value)) from error


@cache
def known_settings() -> Mapping[str, Setting]:
    """Every setting by its key, in the order of `Settings`."""
    described = cast(inspect.StructType, inspect.type_info(Settings))
    return {field.name: _setting(field) for field in described.fields}


@cache
def _types() -> Mapping[str, object]:
    """The type of every setting, by its key; most runs are given no setting."""
    return {field.name: field.type for field in msgspec.structs.fields(Settings)}


def in_words(value: object) -> str:
    """`value`, with its kind, as an error message names it; what is long is cut."""
    if isinstance(value, bool):
        return f"the switch {str(value).lower()}"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    if isinstance(value, int | float):
        return f"the number {value}"
    if value == "":
        return "nothing"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    return f"a {type(value).__name__}"


def _setting(field: inspect.Field) -> Setting:
    inner, help_text, extra = field.type, "", {}
    if isinstance(inner, inspect.Metadata):
        extra = inner.extra or {}
        help_text = str((inner.extra_json_schema or {}).get("description", ""))
        inner = inner.type
    optional = isinstance(inner, inspect.UnionType)
    if isinstance(inner, inspect.UnionType):
        inner = next(part for part in inner.types if not isinstance(part, inspect.NoneType))
    kind, expected, choices = _shape(inner)
    amount = extra.get("amount", False)
    return Setting(
        key=field.name,
        help=help_text,
        kind=kind,
        expected=f"{expected}, which may end in k, M or G" if amount else expected,
        choices=choices,
        optional=optional,
        flag=extra.get("flag", True),
        amount=amount,
    )


def _shape(
    shape: inspect.Type,
) -> tuple[Literal["text", "number", "switch"], str, tuple[str, ...]]:
    if isinstance(shape, inspect.LiteralType):
        choices = tuple(str(value) for value in shape.values)
        return "text", f"one of {', '.join(choices)}", choices
    if isinstance(shape, inspect.IntType):
        return "number", f"a whole number from {shape.ge} to {shape.le}", ()
    if isinstance(shape, inspect.BoolType):
        return "switch", "true or false", ()
    if isinstance(shape, inspect.StrType):
        if shape.pattern:
            return "text", f"text that matches {shape.pattern}", ()
        return "text", "text", ()
    raise TypeError(f"settings of the shape {shape} cannot be read")


def _printable(text: str) -> bool:
    """True when `text` has neither control characters nor halves of surrogate pairs."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)
