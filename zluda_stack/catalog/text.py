"""Files of the catalogue that are nothing but words: no value in them is a number."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from zluda_stack.errors import StackError

_DATA = Path(__file__).parent / "data"
_T = TypeVar("_T")


def load_text(kind: str, shape: type[_T], described_in: str) -> _T:
    """What stands under the key `kind` in the catalogue's file of that name, as a `shape`.

    Every scalar is text before it is converted, since 8.5 can be a name. Raises StackError, naming
    the file and the module that describes it, when it cannot be read or has another shape.
    """
    path = _DATA / f"{kind}.yml"
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        document = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506
        return msgspec.convert(document[kind], type=shape, strict=False)
    except OSError as error:
        raise StackError(
            f"cannot read {path}: {error.strerror}", "Install zluda-stack again."
        ) from error
    except (yaml.YAMLError, msgspec.ValidationError, KeyError, TypeError) as error:
        hint = f"Correct the file; its shape is described in zluda_stack/catalog/{described_in}."
        raise StackError(f"{path}: {error}", hint) from error
