"""Where zluda-stack keeps things, after the XDG base directory specification."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_APP = "zluda-stack"


def config_file() -> Path:
    """The user's settings file, normally ~/.config/zluda-stack/zluda-stack.yml."""
    return Path(platformdirs.user_config_dir(_APP)) / "zluda-stack.yml"


def model_store() -> Path:
    """The content-addressed model store, normally ~/.local/share/zluda-stack/models."""
    return Path(platformdirs.user_data_dir(_APP)) / "models"


def stacks() -> Path:
    """One folder a stack (--name), normally ~/.local/state/zluda-stack/stacks."""
    return Path(platformdirs.user_state_dir(_APP)) / "stacks"


def stack(name: str) -> Path:
    """State, logs and key of the stack `name`."""
    return stacks() / name


def connected() -> Path:
    """What settings files of clients held before `connect` wrote to them."""
    return Path(platformdirs.user_state_dir(_APP)) / "connected"


def project() -> Path:
    """The files that images are built from: inside the wheel, or a source checkout's top."""
    package = Path(__file__).parent
    packaged = package / "_project"
    return packaged if packaged.is_dir() else package.parent


def images() -> Path:
    """The templates of the images."""
    return project() / "images"


def kept_catalog() -> Path:
    """What the catalogue's YAML said last, normally ~/.cache/zluda-stack/catalog.msgpack."""
    return Path(platformdirs.user_cache_dir(_APP)) / "catalog.msgpack"


def compiled_kernels() -> Path:
    """What ZLUDA compiled for programs of `run`, normally ~/.cache/zluda-stack/run."""
    return Path(platformdirs.user_cache_dir(_APP)) / "run"


def adapted() -> Path:
    """The logs of `adapt`, normally ~/.local/state/zluda-stack/adapted."""
    return Path(platformdirs.user_state_dir(_APP)) / "adapted"


def toolbox() -> Path:
    """The files and the log of the toolbox's build, normally ~/.local/state/zluda-stack/toolbox."""
    return Path(platformdirs.user_state_dir(_APP)) / "toolbox"
