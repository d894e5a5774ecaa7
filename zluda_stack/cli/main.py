"""The console script: the command table, loaded lazily, and the one place where errors end."""

from __future__ import annotations

import copy
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

from zluda_stack import program
from zluda_stack.cli.context import Invocation, invocation
from zluda_stack.errors import ExitCode, HostProblem, Interrupted, StackError, UsageError

if TYPE_CHECKING:
    from typing import TypeGuard

    from click.shell_completion import CompletionItem

PROGRAM = program.NAME
COMPLETION_VARIABLE = "_ZLUDA_STACK_COMPLETE"

# Errors that are this machine's, and not a bug of ours.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_NOT_OURS = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.ELOOP}
)


class Entry(NamedTuple):
    """A command before it is imported: where it lives (module:attribute) and what it does."""

    target: str
    help: str


_CLI = "zluda_stack.cli"
SECTIONS: dict[str, dict[str, Entry]] = {
    "Run it": {
        "up": Entry(f"{_CLI}.stack:up", "Start the stack and prove that it answers."),
        "down": Entry(f"{_CLI}.stack:down", "Stop the stack."),
        "restart": Entry(f"{_CLI}.stack:restart", "Stop the stack and start it as it was."),
        "connect": Entry(f"{_CLI}.connect:connect", "Print or write a client's settings."),
        "claude": Entry(f"{_CLI}.claude:claude", "Start Claude Code against the running stack."),
        "keys": Entry(f"{_CLI}.keys:keys", "Give others keys to the stack, with limits."),
    },
    "CUDA programs": {
        "advise": Entry(f"{_CLI}.advise:advise", "Say which way to take, and why."),
        "check": Entry(f"{_CLI}.check:check", "Say whether a CUDA program will run on ZLUDA."),
        "run": Entry(f"{_CLI}.run:run", "Run a CUDA program on the GPU, in a container."),
        "adapt": Entry(f"{_CLI}.adapt:adapt", "Make an image find ZLUDA."),
        "precompile": Entry(f"{_CLI}.precompile:precompile", "Compile kernels ahead of first use."),
        "verify": Entry(f"{_CLI}.verify:verify", "Prove what the card computes."),
        "toolbox": Entry(f"{_CLI}.toolbox:toolbox", "Convert CUDA to HIP; compile and profile."),
    },
    "Look at it": {
        "status": Entry(f"{_CLI}.stack:status", "Show what runs and whether it answers."),
        "logs": Entry(f"{_CLI}.stack:logs", "Show what the services wrote."),
        "bench": Entry(f"{_CLI}.bench:bench", "Measure how fast targets answer, and compare."),
        "plan": Entry(f"{_CLI}.plan:plan", "Show what would happen, and why."),
        "doctor": Entry(f"{_CLI}.doctor:doctor", "Check this machine."),
        "gpus": Entry(f"{_CLI}.gpus:gpus", "List the GPUs of this machine."),
        "explain": Entry(f"{_CLI}.explain:explain", "Say what is known of a GPU or a component."),
    },
    "Files and settings": {
        "models": Entry(f"{_CLI}.models:models", "List, fetch, check and remove models."),
        "render": Entry(f"{_CLI}.render:render", "Write Dockerfiles and compose files."),
        "build": Entry(f"{_CLI}.build:build", "Build the images of a container stack."),
        "bake": Entry(f"{_CLI}.bake:bake", "Write a BuildKit bake file for every gfx target."),
        "bundle": Entry(f"{_CLI}.bundle:bundle", "Carry everything to a machine without network."),
        "lock": Entry(f"{_CLI}.lock:lock", "Write or check what everything is pinned to."),
        "config": Entry(f"{_CLI}.config:config", "Show and change settings."),
        "completion": Entry(f"{_CLI}.completion:completion", "Print shell completion."),
    },
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, and not for --help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of all commands, in the order of the help page."""
        return [name for entries in SECTIONS.values() for name in entries]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command `cmd_name`, imported now; None when there is none of that name."""
        for entries in SECTIONS.values():
            if cmd_name in entries:
                module, _, attribute = entries[cmd_name].target.partition(":")
                return _with_global_options(getattr(import_module(module), attribute))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise UsageError with the nearest name."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"there is no command {name!r}", _did_you_mean(name, known, PROGRAM))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the command table by section."""
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table and options as click does."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=entry.help)
            for entries in SECTIONS.values()
            for name, entry in entries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _set_verbose(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if value:
        invocation(ctx).verbose = True


def _set_no_color(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if value:
        invocation(ctx).no_color = True
        ctx.color = False


def _set_host_facts(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if isinstance(value, str):
        invocation(ctx).host_facts = Path(value)


def _print_version(ctx: click.Context, _: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        from zluda_stack.build_info import version_text

        click.echo(version_text())
        ctx.exit()


def _global_options(*, hidden: bool) -> list[click.Parameter]:
    return [
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            hidden=hidden,
            callback=_set_verbose,
            help="Show where an internal error came from.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            hidden=hidden,
            callback=_set_no_color,
            help="No colours; NO_COLOR does the same.",
        ),
        click.Option(
            ["--host-facts"],
            type=click.Path(),
            metavar="FILE",
            expose_value=False,
            hidden=hidden,
            callback=_set_host_facts,
            help="Plan for the machine in FILE, written by doctor --capture.",
        ),
    ]


def _with_global_options(command: click.Command) -> click.Command:
    """A copy of `command` that takes the global options too, wherever people write them."""
    own = copy.copy(command)
    own.params = [*command.params, *_global_options(hidden=True)]
    if isinstance(own, click.Group):
        own.commands = {name: _with_global_options(sub) for name, sub in own.commands.items()}
    return own


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
    no_args_is_help=False,
    invoke_without_command=True,
    params=_global_options(hidden=False),
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version, the build and the pinned parts.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run CUDA-only AI software on AMD GPUs through ZLUDA, and serve it to your tools.

    Start with `zluda-stack up`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (sys.argv without the program's name when None).

    Returns the exit code: one of ExitCode, or that of the program that `run` ran. Nothing is
    raised: what went wrong is told on stderr in one line, with the next step in another, or on
    stdout as JSON under --json.
    """
    _prepare_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    run = Invocation()
    try:
        try:
            code = _invoke(arguments, run)
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            code = _report(error, run, arguments)
    except BrokenPipeError:
        _silence(sys.stdout)
        return ExitCode.READER_GONE
    return code


def _invoke(arguments: list[str], run: Invocation) -> int:
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {"obj": run}, PROGRAM, COMPLETION_VARIABLE, instruction)
    try:
        with cli.make_context(PROGRAM, arguments, obj=run) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as missing:
        click.echo(missing.ctx.get_help())
    return ExitCode.OK


def _wants_json(arguments: list[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _report(error: BaseException, run: Invocation, arguments: list[str]) -> int:
    """Tell the user about `error`; returns the exit code. Raises only BrokenPipeError."""
    if isinstance(error, BrokenPipeError):
        raise error
    told = _as_stack_error(error, run, arguments)
    if _output_failed(error):
        _silence(sys.stdout)
    elif _wants_json(arguments):
        try:
            _tell_json(told)
        except OSError as failed:
            return _report(failed, run, arguments)
        return told.exit_code
    try:
        _tell_people(error, told, no_color=run.no_color)
    except BrokenPipeError:
        raise
    except OSError:  # there is nowhere left to tell it
        _silence(sys.stderr)
    return told.exit_code


def _tell_json(told: StackError) -> None:
    import json

    from zluda_stack.cli import output

    click.echo(json.dumps({"error": output.error_facts(told)}, indent=2))


def _tell_people(error: BaseException, told: StackError, *, no_color: bool) -> None:
    from zluda_stack.cli import output

    if isinstance(error, KeyboardInterrupt) and sys.stderr.isatty():
        click.echo(err=True)
    output.complain(told.message, told.hint, no_color=no_color)


def _as_stack_error(error: BaseException, run: Invocation, arguments: list[str]) -> StackError:
    if isinstance(error, StackError):
        return error
    if isinstance(error, click.ClickException):
        return _from_click(error, arguments)
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort | EOFError):
        return Interrupted("interrupted")
    if _output_failed(error):
        return HostProblem(f"cannot write the output: {error.strerror}", "Send it elsewhere.")
    if isinstance(error, OSError) and error.filename and error.errno in _NO_ROOM | _NOT_OURS:
        return HostProblem(
            f"cannot use {error.filename}: {error.strerror}",
            "Check the folder's owner and free space.",
        )
    from zluda_stack.cli.crash import record

    return record(error, verbose=run.verbose)


def _output_failed(error: BaseException) -> TypeGuard[OSError]:
    """True for the error of a stream; that of a file that the program opened names the file."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM


def _from_click(error: click.ClickException, arguments: list[str]) -> UsageError:
    """What click found wrong, in this program's style."""
    context = getattr(error, "ctx", None)
    command = _first_command(arguments) if context is None else context.command_path
    possibilities = getattr(error, "possibilities", None)
    if isinstance(error, click.NoSuchOption):
        message = f"no such option {error.option_name!r}"
        hint = f"{_near_option(error)}`{command} --help` lists all."
    elif possibilities:
        message = error.message
        hint = f"Did you mean {possibilities[0]}? `{command} --help` lists all."
    else:
        message = error.format_message()
        hint = f"See `{command} --help`."
    message = " ".join(message.split()).removesuffix(".")
    return UsageError(message[:1].lower() + message[1:], hint)


def _near_option(error: click.NoSuchOption) -> str:
    """The beginning of a hint with the option that was meant; the dashes make none alike."""
    from zluda_stack.catalog.nearest import nearest

    bare = {name.lstrip("-"): name for name in error.possibilities or ()}
    close = nearest(error.option_name.lstrip("-"), bare)
    return f"Did you mean {bare[close[0]]}? " if close else ""


def _first_command(arguments: list[str]) -> str:
    names = {name for entries in SECTIONS.values() for name in entries}
    found = next((word for word in arguments if word in names), None)
    return f"{PROGRAM} {found}" if found else PROGRAM


def _did_you_mean(name: str, known: Sequence[str], command: str) -> str:
    from zluda_stack.catalog.nearest import did_you_mean

    return f"{did_you_mean(name, known)}`{command} --help` lists all."


def _prepare_streams() -> None:
    """Let no output fail: closed streams lead nowhere, what an encoding lacks is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _silence(stream: TextIO) -> None:
    """Point `stream` at nothing, so that the interpreter's last flush cannot fail."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
