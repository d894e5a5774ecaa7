"""`zluda-stack completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_LOADING = {
    "bash": 'eval "$(zluda-stack completion bash)"',
    "zsh": 'eval "$(zluda-stack completion zsh)"',
    "fish": "zluda-stack completion fish | source",
}


@click.command()
@click.argument("shell", type=click.Choice(sorted(_LOADING)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    Load it in the shell's start file: `eval "$(zluda-stack completion bash)"`, the same with
    zsh, or `zluda-stack completion fish | source`.
    """
    from zluda_stack.cli.main import COMPLETION_VARIABLE, PROGRAM

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE).source())
