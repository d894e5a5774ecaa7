"""`zluda-stack toolbox`: ROCm's compiler and developer tools, in a container, on your folder."""

from __future__ import annotations

import shlex

import click

from zluda_stack.cli import in_toolbox, output
from zluda_stack.cli.hipify import hipify
from zluda_stack.cli.options import (
    ImageName,
    dry_run_option,
    folder_options,
    json_option,
    settings_options,
)
from zluda_stack.errors import UsageError

# What stands for the command after `--`; nobody types a blank in a name.
_ANY = "any command"
_SHELL = "shell"
_SHELL_COMMAND = ("bash", "--norc")


class Raw(click.Command):
    """A command whose arguments are another program's: none of them is looked at here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep `args` as they are."""
        ctx.args = list(args)
        return ctx.args


class Tools(click.Group):
    """The tools of the toolbox as commands, and after `--` any command of its image."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The options of the toolbox itself; all behind a tool's name is the tool's."""
        if "--" in args:
            head, command = args[: args.index("--")], args[args.index("--") + 1 :]
            if command and not self.make_parser(ctx).parse_args(list(head))[1]:
                args = [*head, _ANY, *command]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """What this program does itself, the tools, and a shell."""
        return [*super().list_commands(ctx), *_titles()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command `cmd_name`; None when the toolbox has no such tool."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        title = "" if cmd_name == _ANY else _titles().get(cmd_name)
        if title is None:
            return None
        return Raw(cmd_name, callback=_run, short_help=title, add_help_option=False)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the tool, or raise UsageError with the nearest name."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from zluda_stack.catalog.nearest import did_you_mean

            raise UsageError(
                f"the toolbox has no tool {args[0]!r}",
                f"{did_you_mean(args[0], self.list_commands(ctx))}"
                f"`zluda-stack toolbox -- {shlex.join(args)}` runs any command of its image.",
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Tools, invoke_without_command=True, subcommand_metavar="TOOL [ARGS]...")
@settings_options(
    *("gpu", "passthrough", "hsa_override", "variant", "base", "cuda_toolkit", "accept_cuda_eula")
)
@folder_options("the tool")
@click.option(
    "--image", type=ImageName(), metavar="IMAGE", help="A toolbox other than the planned."
)
@click.option("--list", "listing", is_flag=True, help="Say which tools the image has.")
@dry_run_option
@json_option
@click.pass_context
def toolbox(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    mounts: tuple[str, ...],
    environment: tuple[str, ...],
    image: str | None,
    no_cwd: bool,
    listing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run ROCm's developer tools in a container, as you, in the current folder.

    `hipify` converts CUDA sources to HIP and says what is left to do. `hipcc` compiles for the
    chosen card, which need not be here: zluda-stack toolbox --gpu gfx1100 hipcc x.hip -o x

    All behind a tool's name is the tool's own, as is the exit code; `toolbox -- COMMAND` runs
    anything that the image has. `zluda-stack build toolbox` builds it.
    """
    options = in_toolbox.Options(
        flags=flags,
        mounts=mounts,
        environment=environment,
        image=image,
        no_cwd=no_cwd,
        dry_run=dry_run,
    )
    in_toolbox.remember(ctx, options)
    if listing:
        _list(ctx, as_json=as_json)
        ctx.exit()
    if as_json:
        raise UsageError("here --json is for --list", "zluda-stack toolbox hipify --json SOURCE")
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


toolbox.add_command(hipify)


def _titles() -> dict[str, str]:
    from zluda_stack.plan.toolbox import TOOLS

    return {name: tool.title for name, tool in TOOLS.items()} | {_SHELL: "a shell among them"}


@click.pass_context
def _run(ctx: click.Context) -> None:
    if ctx.info_name == _ANY:
        in_toolbox.run(ctx, tuple(ctx.args))
    elif ctx.info_name == _SHELL:
        in_toolbox.run(ctx, (*_SHELL_COMMAND, *ctx.args))
    else:
        in_toolbox.run(ctx, (str(ctx.info_name), *ctx.args))


def _list(ctx: click.Context, *, as_json: bool) -> None:
    """Print the tools of the image, and what is not in it."""
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.toolbox import installed

    plan = in_toolbox.lone_container(ctx, ("true",))
    in_toolbox.require_image(ctx, plan)
    with containers.connect() as client:
        tools = installed(client, plan.image)
    if as_json:
        output.print_json({"image": plan.image, "tools": tools})
        return
    rows = [(tool.name, tool.version or "not in this image", tool.title) for tool in tools]
    output.table(("tool", "version", "what for"), rows)
