"""The command `explain`: what the catalogue knows, and how well it is proven."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import json_option

if TYPE_CHECKING:
    from zluda_stack.catalog.explain import Explanation

_UNVERIFIED = "unverified: nobody has seen it"


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from zluda_stack.catalog.explain import names

    every = (name for group in names(context.catalog()).values() for name in group)
    return [name for name in every if name.startswith(incomplete)]


@click.command()
@click.argument("name", nargs=-1, shell_complete=_complete)
@json_option
def explain(name: tuple[str, ...], *, as_json: bool) -> None:
    """Say what is known of a GPU, base image, component, model, client or combination.

    NAME is a gfx target or a product (rx 7900 xtx), or a name from the list that this command
    prints without a NAME.
    """
    from zluda_stack.catalog import explain as explaining

    catalog = context.catalog()
    if not name:
        known = explaining.names(catalog)
        if as_json:
            output.print_json(known)
        else:
            output.table(
                ("kind", "names"), [(kind, ", ".join(all_)) for kind, all_ in known.items()]
            )
        return
    found = explaining.explain(catalog, " ".join(name))
    if as_json:
        output.print_json(as_facts(found))
    else:
        print_explanation(found)


def as_facts(found: Explanation) -> dict[str, object]:
    """The explanation as it stands in JSON."""
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(found)
    return {"unverified": found.unverified, **plain}


def print_explanation(found: Explanation) -> None:
    """The explanation as people read it: each fact with its proof, then the sources."""
    output.heading(f"{found.name}: {found.title} ({found.kind})")
    output.say(f"As a whole: {found.evidence.value}.")
    output.table(
        ("what", "known", "how well proven"),
        [
            (fact.what, _UNVERIFIED if fact.value is None else fact.value, fact.evidence.value)
            for fact in found.facts
        ],
    )
    for source in dict.fromkeys(found.sources):
        output.say(f"Source: {source.source}, read {source.date}.")
        if source.note:
            output.say(f"Note: {source.note}")
