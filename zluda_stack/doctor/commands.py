"""Commands that several fixes share, as this host's distribution spells them."""

from __future__ import annotations

import shlex

from zluda_stack.catalog.schema import Distribution
from zluda_stack.doctor.subject import CPU_WAY, Subject
from zluda_stack.doctor.types import Fix
from zluda_stack.program import NAME

DOCKER_HOWTO = "Docker's own archive must be set up first: https://docs.docker.com/engine/install/"
_FROM_DOCKERS_ARCHIVE = "docs.docker.com"

USE_CPU = Fix(command=CPU_WAY, then="It computes on the CPU.")


def again(subject: Subject, verb: str, **instead: object) -> str:
    """The command line of `verb` with the flags that this run was given, some with other values."""
    given = {
        key: getattr(subject.settings, key)
        for key, origin in subject.configured.origins.items()
        if origin.kind == "flag"
    }
    words = (_flag(key, value) for key, value in (given | instead).items())
    return " ".join((NAME, verb, *words))


def of_stack(subject: Subject, verb: str) -> str:
    """The command line of `verb` for the stack that is examined."""
    name = subject.settings.name
    return f"{NAME} {verb}" + ("" if name == "default" else f" --name {name}")


def _flag(key: str, value: object) -> str:
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {shlex.quote(str(value))}"


def distribution(subject: Subject) -> Distribution:
    """The catalogue's entry for this host's distribution; that for all others where it is unknown.

    A distribution that builds on another (Linux Mint on Ubuntu) is found by its own name first.
    """
    name = (subject.facts.distribution or "").lower()
    every = subject.catalog.host.distributions.values()
    named = (each for each in every if any(word in name for word in each.words))
    return next(named, None) or next(each for each in every if not each.words)


def install(subject: Subject, what: str) -> Fix:
    """Install `docker`, or its plugin `compose` or `buildx`."""
    here = distribution(subject)
    commands = {"docker": here.docker, "compose": here.compose, "buildx": here.buildx}
    theirs = here.words and _FROM_DOCKERS_ARCHIVE in here.provenance.source
    return Fix(command=commands[what], then=DOCKER_HOWTO if theirs else "")


def without_kernel_option(subject: Subject, option: str) -> Fix:
    """Remove `option` from the kernel's command line."""
    here = distribution(subject)
    then = (
        "Restart the machine." if here.words else f"Remove {option} in the boot loader's settings."
    )
    return Fix(command=here.without_option.replace("{option}", option), then=then)


def use_default_context(subject: Subject) -> Fix | None:
    """Turn to the Docker Engine of this host; None where no such context is there."""
    if subject.facts.docker.contexts and "default" not in subject.facts.docker.contexts:
        return None
    return Fix(command="docker context use default", safe=True)


def outside(subject: Subject, what: str) -> Fix:
    """What only the host of this container can mend."""
    return Fix(
        command="zluda-stack doctor",
        then=f"Run it on the host itself, not in this {subject.facts.container} container; to stay "
        f"in it, have the host pass {what} through.",
    )


def join_group(subject: Subject, path: str, gid: int) -> Fix:
    """Make the user a member of the group that owns `path`."""
    names = {gid: name for name, gid in subject.facts.user.groups.items()}
    group = names.get(gid, f"$(stat -c %G {shlex.quote(path)})")
    quoted = group if gid in names else f'"{group}"'
    return Fix(command=f'sudo usermod -aG {quoted} "$USER"', then="Log out and in again.")
