"""What one file holds that matters to ZLUDA; nothing is judged here."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.check.ptx_misses import Miss
from zluda_stack.cuda.coverage import Support


class Ptx(Struct, frozen=True, kw_only=True):
    """One PTX module; `name` is what cuobjdump calls it, `bytes` the size of its text.

    `container` is the number of its fat binary in `section`; None for text outside of any.
    `version` and `target` are the module's own; None when it cannot be read (`problem` says why).
    """

    name: str
    section: str | None
    container: int | None
    architecture: str
    version: str | None
    target: str | None
    bytes: int
    kernels: int
    misses: tuple[Miss, ...] = ()
    problem: str | None = None


class Cubin(Struct, frozen=True, kw_only=True):
    """One piece of machine code for NVIDIA's cards; `kernels` are known only where that mattered.

    They are read where a fat binary has no PTX: its kernels are then lost. An empty tuple is code
    without any, as the device linker adds it.
    """

    name: str
    section: str | None
    container: int | None
    architecture: str
    bytes: int
    kernels: tuple[str, ...] | None = None
    version: None = None


class Function(Struct, frozen=True, order=True):
    """A function of a CUDA library; `support` is None where ZLUDA does not replace the library."""

    name: str
    library: str | None
    support: Support | None


class Uncompiled(Struct, frozen=True):
    """A PTX module that ZLUDA's compiler does not take as a whole, and the kernels in it."""

    module: str
    problem: str
    kernels: str


class FileFacts(Struct, frozen=True, kw_only=True):
    """One file. `kind` is that of its ELF header, or ptx, fat binary; `problem` why it is unread.

    `opens` are the CUDA libraries that its strings name, `looks_up` the functions among its strings
    that ZLUDA knows of. `other_code` counts entries that only NVIDIA's tools read (link-time IR).
    `compiled_for` is the gfx target that the PTX was compiled for, `uncompiled` what failed.
    """

    name: str
    bytes: int
    kind: str = ""
    machine: str | None = None
    bits: int | None = None
    interpreter: str | None = None
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    imports: tuple[Function, ...] = ()
    opens: tuple[str, ...] = ()
    looks_up: tuple[Function, ...] = ()
    static_cudart: bool = False
    ptx: tuple[Ptx, ...] = ()
    cubins: tuple[Cubin, ...] = ()
    other_code: int = 0
    problem: str | None = None
    unreadable: bool = False
    compiled_for: str | None = None
    uncompiled: tuple[Uncompiled, ...] = ()
