"""`zluda-stack bench`: how fast targets answer, and whether a difference is real."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from zluda_stack.cli import bench_dry_run, bench_kernels, bench_targets, context, output
from zluda_stack.cli.options import dry_run_option, json_option, settings_options, yes_option
from zluda_stack.errors import EngineFailure, ExitCode, Interrupted, StackError, UsageError
from zluda_stack.settings import Profile

if TYPE_CHECKING:
    from zluda_stack.bench.compare import Comparison, Side
    from zluda_stack.bench.measure import Asked, Measured, Target
    from zluda_stack.bench.rocprof import Kernel
    from zluda_stack.bench.saved import Machine, NotMeasured, Run

    Kernels = dict[str, tuple[Kernel, ...]]

_MOST_CLIENTS = 256
# Without --rounds: what is asked, and how much more while it is not enough to tell.
_ROUNDS, _MORE_ROUNDS = 24, 72


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option(
    "--compare",
    "saved",
    nargs=2,
    metavar="A.json B.json",
    help="Measure nothing: say whether two saved benches differ. FILE#TARGET is one of several.",
)
@click.option(
    "--kernels",
    metavar="DIR",
    help="Measure nothing: show the kernels that rocprofv3 counted into DIR, the longest first.",
)
@click.option(
    "--rocprof",
    metavar="DIR",
    help="Run the servers under rocprofv3, and show the kernels that it counts, into DIR.",
)
@click.option("--prompt", "prompts", metavar="LIST", help="Of small, file, coding; all without.")
@click.option(
    "--clients", default="1", show_default=True, metavar="LIST", help="How many ask at once: 1,2,4."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    metavar="N",
    help=f"Each visits every target twice. Without: {_ROUNDS}, and up to {_ROUNDS + _MORE_ROUNDS} "
    "where the numbers vary much; one with --rocprof.",
)
@click.option("--cached", is_flag=True, help="The same prompt each time: the server may keep it.")
@click.option(
    "--margin",
    type=click.FloatRange(0.1, 100),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Alike within so much; a difference that is seen is none when surely under half of it.",
)
@click.option("-o", "--out", metavar="FILE", help="Save all samples as JSON.")
@click.option("--picture", metavar="FILE", help="Draw it, as .png or .svg.")
@click.option("--remote-model", metavar="NAME", help="What to ask a URL for; its only one without.")
@click.option("--key-env", metavar="VARIABLE", help="The variable that holds the key of a URL.")
@click.option("--key-file", metavar="FILE", help="The file that holds the key of a URL.")
@settings_options(
    *("engine", "gpu", "vram", "passthrough", "model", "context", "variant", "base", "zluda"),
    *("zluda_path", "cuda_toolkit", "hsa_override", "accept_cuda_eula", "registry", "offline"),
    "threads",
)
@yes_option
@dry_run_option
@json_option
@click.pass_context
def bench(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    targets: tuple[str, ...],
    saved: tuple[str, str] | None,
    kernels: str | None,
    rocprof: str | None,
    prompts: str | None,
    clients: str,
    rounds: int | None,
    cached: bool,
    margin: float,
    out: str | None,
    picture: str | None,
    remote_model: str | None,
    key_env: str | None,
    key_file: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure how fast targets answer: first token, tokens a second, memory, power.

    A TARGET is a profile (translated, native, webui, cpu), which is brought up for it and taken
    down again, a running stack (stack:NAME), or the URL of a server that speaks OpenAI's API.
    Without any: translated, native and cpu. Several are asked the same, in turn, and compared.
    """
    if saved is not None:
        _compare_saved(targets, saved, margin / 100, as_json=as_json)
        return
    if kernels is not None:
        bench_kernels.tell_counted(targets, Path(kernels), as_json=as_json)
        return
    if rounds is None and rocprof is not None:
        # It keeps a line for each launch of a kernel, and its numbers are no measure of speed.
        rounds = 1
    asked = _asked(prompts, clients, rounds, margin / 100, cached=cached)
    _require_places(out, picture)
    if not dry_run:
        context.refuse_replay(ctx, "bench")
    remote = bench_targets.Remote(model=remote_model, key_env=key_env, key_file=key_file)
    counting = None if rocprof is None else bench_kernels.new_folder(Path(rocprof))
    how = bench_targets.How(remote=remote, cached=cached, counting=counting)
    found, refused = bench_targets.find(ctx, flags, targets, how)
    if dry_run:
        bench_dry_run.tell(ctx, found, refused, asked, as_json=as_json)
        if found or as_json:
            ctx.exit(ExitCode.OK if found else ExitCode.ENGINE)
        raise _nothing(refused)
    for one in refused:
        output.warn(f"{one.target} cannot be measured here: {one.reason}", one.hint)
    if not found:
        raise _nothing(refused)
    bench_targets.agree(ctx, found, yes=yes, show=not as_json)
    if counting is not None:
        bench_kernels.make(counting)
    measured = _measure(found, refused, asked)
    run = _run(measured, refused, asked, _machine(ctx))
    counted = bench_kernels.counted(found, run)
    problems = [*measured.still_up, *_save(run, out, picture), *counted.lost]
    if as_json:
        _print_json(run, counted.kernels, problems, margin / 100)
        ctx.exit(problems[0].exit_code if problems else ExitCode.OK)
    _tell(run, counted.kernels, margin / 100)
    _raise_first(problems)


def _asked(
    prompts: str | None, clients: str, rounds: int | None, margin: float, *, cached: bool
) -> Asked:
    """What is asked of every target. Raises UsageError."""
    from zluda_stack.bench.measure import Asked
    from zluda_stack.bench.prompts import all_prompts

    known = all_prompts()
    names = list(known) if prompts is None else prompts.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"there is no prompt {unknown[0]!r}", f"There are {', '.join(known)}.")
    counts = clients.split(",")
    if not all(one.isascii() and one.isdigit() and 0 < int(one) <= _MOST_CLIENTS for one in counts):
        raise UsageError(
            f"--clients takes whole numbers up to {_MOST_CLIENTS}, and got {clients!r}",
            "Give them with commas: --clients 1,2,4,8.",
        )
    return Asked(
        prompts=tuple(known[name] for name in known if name in names),
        clients=tuple(sorted({int(one) for one in counts})),
        rounds=rounds or _ROUNDS,
        more_rounds=0 if rounds else _MORE_ROUNDS,
        margin=margin,
        cached=cached,
        order=secrets.randbelow(2**32),
    )


def _require_places(out: str | None, picture: str | None) -> None:
    """Raises UsageError, HostProblem where what takes long could not be written in the end."""
    from zluda_stack.files import require_writable

    if picture is not None:
        from zluda_stack.bench.picture import require

        require(Path(picture))
    for place in (out, picture):
        if place is not None:
            require_writable(Path(place))


def _save(run: Run, out: str | None, picture: str | None) -> Iterator[StackError]:
    """Write the files, and give what went wrong: what was measured is to be told all the same."""
    from zluda_stack.bench.saved import write

    try:
        if out is not None:
            write(Path(out), run)
    except StackError as error:
        yield error
    try:
        if picture is not None:
            from zluda_stack.bench.picture import draw

            draw(run, Path(picture))
    except StackError as error:
        yield error


def _raise_first(problems: list[StackError]) -> None:
    """Warn of all but the first of `problems`, and raise that, if there is one."""
    for problem in problems[1:]:
        output.warn(problem.message, problem.hint)
    if problems:
        raise problems[0]


def _nothing(refused: list[NotMeasured]) -> StackError:
    first = refused[0]
    general = "`zluda-stack doctor` looks at the machine; `zluda-stack bench cpu` needs no card."
    if first.target not in (*get_args(Profile), "cpu"):
        general = "Look at its address, its key and whether it runs, then measure again."
    return EngineFailure(
        f"nothing can be measured here: {first.target}: {first.reason}", first.hint or general
    )


def _measure(targets: list[Target], refused: list[NotMeasured], asked: Asked) -> Measured:
    """Measure, with progress. What was brought up is taken down, whatever happens."""
    from zluda_stack.bench.measure import Bench

    with output.progress() as progress:
        try:
            with _ended_as_interrupted(), Bench(targets, asked, progress) as made:
                measured = made.run()
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted; what the bench brought up is taken down, and nothing is saved"
            ) from None
    if not measured.waves:
        raise _nothing([*measured.not_measured, *refused])
    return measured


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM, as a time limit or a CI job's end sends it, counts as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(measured: Measured, refused: list[NotMeasured], asked: Asked, machine: Machine) -> Run:
    from zluda_stack.bench.prompts import digest
    from zluda_stack.bench.saved import Run
    from zluda_stack.build_info import build_info

    commit = (build_info().commit or "unknown")[:12]
    names = dict.fromkeys(wave.target for wave in measured.waves)
    return Run(
        program=f"{_version()} ({commit})",
        began=measured.began,
        seconds=round(measured.seconds, 1),
        machine=machine,
        targets=tuple(facts for name, facts in measured.targets.items() if name in names),
        not_measured=(*refused, *measured.not_measured),
        prompts={prompt.name: digest([prompt]) for prompt in asked.prompts},
        cached=asked.cached,
        clients=asked.clients,
        rounds=1 + max(wave.round for wave in measured.waves),
        order=asked.order,
        client_cpu=round(measured.client_cpu / measured.seconds_of_waves, 4),
        waves=tuple(measured.waves),
        watched=tuple(measured.watched),
    )


def _version() -> str:
    from zluda_stack import __version__

    return __version__


def _machine(ctx: click.Context) -> Machine:
    from zluda_stack.bench.machine import machine

    return machine(context.facts(ctx, context.configured(ctx, {}).settings))


def _comparisons(run: Run, margin: float) -> list[Comparison]:
    """The first target beside each of the others."""
    from zluda_stack.bench.compare import Side, compare

    sides = [Side(label=name, run=run, target=name) for name in run.names]
    return [compare(sides[0], other, margin, comparisons=len(sides) - 1) for other in sides[1:]]


def _print_json(run: Run, kernels: Kernels, problems: list[StackError], margin: float) -> None:
    output.print_json(
        {
            "run": run,
            "comparisons": _comparisons(run, margin),
            "kernels": kernels,
            "problems": [output.error_facts(problem) for problem in problems],
        }
    )


def _tell(run: Run, kernels: Kernels, margin: float) -> None:
    """Print what was measured, how targets compare, and the kernels."""
    from zluda_stack.bench import report

    output.table(report.COLUMNS, report.rows(run))
    output.say()
    output.table(report.TAKEN_COLUMNS, report.taken(run))
    for note in report.notes(run):
        output.say(f"note: {note}")
    for comparison in _comparisons(run, margin):
        _tell_comparison(comparison)
    for target, theirs in kernels.items():
        output.say()
        output.heading(f"the kernels of {target}")
        bench_kernels.table(theirs)


def _compare_saved(
    targets: tuple[str, ...], saved: tuple[str, str], margin: float, *, as_json: bool
) -> None:
    """Print what two saved benches say of each other."""
    from zluda_stack.bench.compare import compare

    if targets:
        raise UsageError(
            "--compare measures nothing, so it takes no targets", "Leave one of them out."
        )
    comparison = compare(*_sides(*saved), margin)
    if as_json:
        output.print_json(comparison)
    else:
        _tell_comparison(comparison)


def _sides(first: str, second: str) -> tuple[Side, Side]:
    """The two sides that `first` and `second` name as FILE or FILE#TARGET. Raises UsageError."""
    one, other = _side(first), _side(second)
    if one.label == other.label:
        from msgspec import structs

        return structs.replace(one, label="A"), structs.replace(other, label="B")
    return one, other


def _side(word: str) -> Side:
    from zluda_stack.bench.compare import Side
    from zluda_stack.bench.saved import read

    file, _, target = (word, "", "") if Path(word).exists() else word.rpartition("#")
    path = Path(file or word)
    run = read(path)
    if target and target not in run.names:
        raise UsageError(
            f"{path} has no target {target}", f"It has {', '.join(run.names)}: FILE#TARGET."
        )
    if not target and len(run.names) != 1:
        raise UsageError(
            f"{path} has {len(run.names)} targets: {', '.join(run.names)}",
            f"Name one: {path}#{run.names[0]}.",
        )
    return Side(label=target or path.stem, run=run, target=target or run.names[0])


def _tell_comparison(comparison: Comparison) -> None:
    from zluda_stack.bench import report

    output.say()
    output.heading(f"{comparison.first} beside {comparison.second}")
    output.table(report.COMPARED_COLUMNS, report.compared(comparison))
    for note in comparison.notes:
        output.say(f"note: {note}")
