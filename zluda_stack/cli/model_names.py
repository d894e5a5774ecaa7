"""Names of models, as a shell completes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack.cli import context

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def complete_model(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The catalogue's models whose names begin with what was typed."""
    from click.shell_completion import CompletionItem

    names = (name for name in context.catalog().models if name.startswith(incomplete))
    return [CompletionItem(name) for name in names]


def complete_model_or_file(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The same, or files where no model begins so."""
    from click.shell_completion import CompletionItem

    names = complete_model(ctx, parameter, incomplete)
    return names or [CompletionItem(incomplete, type="file")]
