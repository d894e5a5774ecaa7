"""Hosts of every kind, made from the types of HostFacts: what no probe would write as well."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from zluda_stack.host.facts import HostFacts

# Words that some rule looks for, so that their combinations come up.
WORDS = st.sampled_from(
    [
        *("", "amd", "podman", "default", "desktop-linux", "Docker Desktop", "runc", "25.0.1", "2"),
        *("gfx1100", "gfx1036", "gfx90a", "gfx803", "gfx9999", "0000:03:00.0", "0000:04:00.0"),
        *("/dev/kfd", "/dev/dri/renderD128", "amdgpu", "vfio-pci", "radeon", "nvidia", "lxc"),
        *("nomodeset", "modprobe.blacklist=amdgpu", "Ubuntu 24.04", "Fedora Linux 42", "render"),
        *("permission denied", "the docker command is not installed", "timed out", "1.29.2"),
        *("HSA_OVERRIDE_GFX_VERSION", "ROCR_VISIBLE_DEVICES", "10.3.0", "docker", "embedded"),
        *("running", "crashed", "stopped", "starting", "smollm2-135m", "\x00é\u2028"),
    ]
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 128, 8080, 0x1002, 0x10DE, 65534]), st.integers(0, 1 << 45)
)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: NUMBERS,
    bool: st.booleans(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type: a leaf, or one made of others as HostFacts and its parts are."""
    if kind in LEAVES:
        return LEAVES[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{key: values(each) for key, each in get_type_hints(kind).items()})
    made_of = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(*map(values, made_of))
    if get_origin(kind) is tuple:
        return st.lists(values(made_of[0]), max_size=2).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(values(made_of[0]), values(made_of[1]), max_size=2)
    assert get_origin(kind) is Literal, kind
    return st.sampled_from(made_of)


HOSTS: st.SearchStrategy[HostFacts] = values(HostFacts)
