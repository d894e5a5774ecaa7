"""`zluda-stack run --trace`: the run with ZLUDA's tracing shims, and the bundle of it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from zluda_stack.cli import context, output
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    import click

    from zluda_stack.apps.trace import Cleaner, TracedRun
    from zluda_stack.host.facts import HostFacts
    from zluda_stack.plan.run import Wish
    from zluda_stack.plan.types import Plan


def traced(
    ctx: click.Context, flags: dict[str, object], plan: Plan, wish: Wish, bundle: str | None
) -> int:
    """Run `wish` with the shims and write the bundle; returns the program's exit code.

    Raises HostProblem, also when the bundle cannot be written.
    """
    from zluda_stack.apps.trace import TracedRun
    from zluda_stack.engines.docker.run import run
    from zluda_stack.plan.run import run_plan

    with tempfile.TemporaryDirectory(prefix="zluda-trace-") as folder:
        traced_wish = structs.replace(wish, trace=folder)
        planned = run_plan(plan, traced_wish)
        began = time.monotonic()
        code = run(planned)
        told = TracedRun(
            program=Path(wish.program[0]).name,
            arguments=len(wish.program) - 1,
            exit_code=code,
            seconds=round(time.monotonic() - began, 1),
            target=planned.target,
            front=wish.front,
            image=planned.image,
        )
        path = Path(bundle or f"zluda-trace-{told.program}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
        facts = context.facts(ctx, context.configured(ctx, flags).settings)
        _write(path, Path(folder), traced_wish, told, facts)
    return code


def _write(path: Path, folder: Path, wish: Wish, told: TracedRun, facts: HostFacts) -> None:
    from zluda_stack.apps.trace import contents, write_bundle
    from zluda_stack.engines.docker.run import image_facts
    from zluda_stack.host.capture import without_personal_details

    write_bundle(
        path,
        folder,
        _cleaner(wish),
        run=told,
        versions=_versions(image_facts(told.image)),
        facts=without_personal_details(facts, Path(wish.home)),
    )
    found = contents(folder)
    output.note(
        f"The program ended with exit code {told.exit_code}. {path} "
        f"({megabytes(path.stat().st_size)}) holds {megabytes(found.log_bytes)} of CUDA calls, "
        f"{found.modules} modules of PTX ({found.refused} that ZLUDA's parser complains of), the "
        "versions, and this machine without personal details."
    )
    output.note(
        "Nothing was sent. Look into it, README.txt first, before you attach it to a report."
    )


def _cleaner(wish: Wish) -> Cleaner:
    from zluda_stack.apps.trace import Cleaner
    from zluda_stack.host.redaction import Redaction, own_names

    places = {mount.source: f"MOUNT{number}" for number, mount in enumerate(wish.mounts, start=1)}
    if wish.folder is not None:
        places[wish.folder] = "FOLDER"
    home = Path(wish.home)
    return Cleaner(Redaction(home, own_names(home)), places)


def _versions(image: dict[str, object]) -> dict[str, object]:
    from zluda_stack import __version__
    from zluda_stack.build_info import build_info, pinned_parts

    info = build_info()
    return {
        "zluda-stack": {"version": __version__, "commit": info.commit, "modified": info.modified},
        "pinned": dict(pinned_parts()),
        "image": image,
    }
