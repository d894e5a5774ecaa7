"""`zluda-stack completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "fish": FishComplete,
    "zsh": ZshComplete,
}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    Load it in the shell's start file: `eval "$(zluda-stack completion bash)"`, the same with
    zsh, or `zluda-stack completion fish | source`.
    """
    from zluda_stack.cli.main import COMPLETION_VARIABLE, PROGRAM

    script = _SHELLS[shell](ctx.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE)
    click.echo(script.source())
