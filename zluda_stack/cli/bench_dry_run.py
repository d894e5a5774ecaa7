"""What `bench` would bring up, fetch, build and ask, where nothing of it is done."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from zluda_stack.cli import bench_targets, build_cost, download, output
from zluda_stack.program import as_typed

if TYPE_CHECKING:
    import click

    from zluda_stack.bench.measure import Asked, Target
    from zluda_stack.bench.saved import NotMeasured
    from zluda_stack.engines.docker.estimate import BuildCost
    from zluda_stack.plan.types import Decision

# Only to turn tokens into minutes, and said with them: what a target really does is measured.
_PROMPT_RATE = 500
_ANSWER_RATE = 50


def tell(
    ctx: click.Context,
    found: list[Target],
    refused: list[NotMeasured],
    asked: Asked,
    *,
    as_json: bool,
) -> None:
    """Print it, and what would not be measured and why."""
    if as_json:
        _print_json(ctx, found, refused, asked)
        return
    for one in found:
        output.heading(f"{one.name}: {bench_targets.about(one)}")
        _say_cost(ctx, one)
        for line in bench_targets.commands(one):
            output.say(shlex.join(line))
    for lack in refused:
        output.say(f"{lack.target}: cannot be measured here: {as_typed(lack.reason)}")
        if lack.hint:
            output.say(f"  {as_typed(lack.hint)}")
    if found:
        _say_load(asked)


def _print_json(
    ctx: click.Context, found: list[Target], refused: list[NotMeasured], asked: Asked
) -> None:
    prompt_tokens, answer_tokens = asked.tokens()
    load = {
        "requests": asked.requests(),
        "prompt_tokens": prompt_tokens,
        "answer_tokens": answer_tokens,
        "rounds": asked.rounds,
        "more_rounds": asked.more_rounds,
    }
    fetched = {one.name: _fetched(one) for one in found}
    output.print_json(
        {
            "commands": {one.name: bench_targets.commands(one) for one in found},
            "downloads": {name: told.value for name, told in fetched.items() if told is not None},
            "builds": {one.name: _built(ctx, one) for one in found},
            "not_measured": refused,
            "each": load,
        }
    )


def _say_cost(ctx: click.Context, target: Target) -> None:
    """What has to be fetched and built before it answers."""
    plan = bench_targets.plan_of(target)
    cost = _built(ctx, target)
    if plan is not None and cost is not None:
        output.say(f"# {as_typed(build_cost.line(cost, plan))}")
    fetched = _fetched(target)
    if plan is not None and fetched is not None:
        output.say(f"# The model {plan.model.name} takes {fetched.value}: {fetched.because}.")


def _built(ctx: click.Context, target: Target) -> BuildCost | None:
    plan = bench_targets.plan_to_start(target)
    return None if plan is None else build_cost.of(ctx, plan)


def _fetched(target: Target) -> Decision | None:
    plan = bench_targets.plan_to_start(target)
    return None if plan is None else download.needed(plan)


def _say_load(asked: Asked) -> None:
    prompt_tokens, answer_tokens = asked.tokens()
    minutes = (prompt_tokens / _PROMPT_RATE + answer_tokens / _ANSWER_RATE) / 60
    rounds = "1 round" if asked.rounds == 1 else f"{asked.rounds} rounds"
    least = "at least " if asked.more_rounds else ""
    more = ""
    if asked.more_rounds:
        most = asked.rounds + asked.more_rounds
        more = f" Where the numbers vary there are up to {most}, for ten minutes more at most."
    length = "a minute" if minutes < 1.5 else f"{minutes:.0f} minutes"
    output.say(
        f"Each target gets {least}{asked.requests()} requests in {rounds}: about "
        f"{prompt_tokens:,} tokens of prompts and {answer_tokens:,} of answers.{more} At "
        f"{_PROMPT_RATE} and {_ANSWER_RATE} tokens a second that is {least or 'about '}{length} "
        "for each; a CPU can be ten times as slow. After the first round the bench says how long "
        "it takes."
    )
