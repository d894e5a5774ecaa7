"""What people see of a build. The output is BuildKit's own, as buildx 0.13 printed it."""

from __future__ import annotations

from zluda_stack.engines.docker.progress import BuildOutput, Step

_HEAD = """\
#0 building with "default" instance using docker driver

#1 [internal] load build definition from Dockerfile
#1 transferring dockerfile: 184B done
#1 DONE 0.0s

#4 [build 1/3] FROM docker.io/library/base:1
#4 CACHED

#5 [build 2/3] RUN --mount=type=cache,id=ccache,target=/root/.cache echo one; sleep 2; echo two
#5 0.347 one
"""
_FAILED = """\
#5 2.350 two
#5 DONE 2.4s

#8 [stage-1 3/3] RUN echo bad line; exit 3
#8 0.326 bad line
#8 ERROR: process "/bin/sh -c echo bad line; exit 3" did not complete successfully: exit code: 3
------
 > [stage-1 3/3] RUN echo bad line; exit 3:
0.326 bad line
------
ERROR: failed to solve: process "/bin/sh -c echo bad line; exit 3" did not complete
"""


def _followed(text: str) -> BuildOutput:
    output = BuildOutput("zluda")
    for line in text.splitlines():
        output.feed(line)
    return output


def test_the_running_step_is_told_with_what_it_printed_last() -> None:
    step = _followed(_HEAD).running

    assert step is not None
    assert step.title == "[build 2/3] RUN echo one; sleep 2; echo two"
    assert list(step.output) == ["one"]


def test_buildkits_own_housekeeping_is_no_step() -> None:
    assert _followed("#1 [internal] load .dockerignore\n").running is None


def test_a_failed_step_is_known_with_its_output_and_the_reason() -> None:
    output = _followed(_HEAD + _FAILED)

    assert output.failed is not None
    assert output.failed.title == "[stage-1 3/3] RUN echo bad line; exit 3"
    assert list(output.failed.output) == ["bad line"]
    assert output.error.startswith("failed to solve: process")
    assert output.running is None


def test_of_two_steps_at_once_the_one_that_spoke_last_is_told() -> None:
    output = _followed(
        "#5 [a 1/1] RUN make\n#6 [b 1/1] RUN cargo build\n#5 0.2 cc one.c\n\n"
        "#5 ...\n\n#6 [b 1/1] RUN cargo build\n#6 0.3 Compiling two\n"
    )

    assert output.running is not None
    assert output.running.name == "[b 1/1] RUN cargo build"
    assert list(output.running.output) == ["Compiling two"]


def test_a_failure_before_any_step_keeps_its_reason() -> None:
    output = _followed("ERROR: failed to read dockerfile: open Dockerfile: no such file\n")

    assert output.failed is None
    assert output.error == "failed to read dockerfile: open Dockerfile: no such file"


def test_a_long_command_becomes_one_line_of_bounded_length() -> None:
    title = Step("[build 1/1] RUN " + "very \t long " * 100).title

    assert len(title) == 100
    assert title.endswith("…")
    assert "\t" not in title
