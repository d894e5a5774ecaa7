"""BuildKit's plain output (`--progress=plain`) as steps that people can follow.

The form was read off buildx 0.13: `#N NAME` opens step N, `#N 0.123 TEXT` is what it prints,
`#N DONE 1.2s`, `#N CACHED`, `#N CANCELED` and `#N ERROR: TEXT` end it.
"""

from __future__ import annotations

import re
from collections import deque

from zluda_stack.engines.common import TAIL_LINES

_LINE = re.compile(r"#(\d+) (.*)")
_ENDED = re.compile(r"(?:DONE|CACHED|CANCELED)\b")
_CLOCK = re.compile(r"\d+\.\d+ ")
_MOUNTS = re.compile(r"--mount=\S+ ")
_NAME_LENGTH = 100


class Step:
    """One step of a build: what it is called and what it printed last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.output: deque[str] = deque(maxlen=TAIL_LINES)

    @property
    def title(self) -> str:
        """The name without its mounts, in one line of bounded length."""
        text = " ".join(_MOUNTS.sub("", self.name).split())
        return text if len(text) <= _NAME_LENGTH else text[: _NAME_LENGTH - 1] + "…"


class BuildOutput:
    """Follows the build of one image, line by line.

    `running` is the step that spoke last of those that have not ended; `failed` the one that
    ended the build, with `error` in BuildKit's words.
    """

    def __init__(self, image: str) -> None:
        self._image = image
        self.failed: Step | None = None
        self.error = ""
        self._open: dict[str, Step] = {}
        self._seen: dict[str, Step] = {}

    @property
    def running(self) -> Step | None:
        """The step to tell about; None between steps and for BuildKit's own housekeeping."""
        steps = [step for step in self._open.values() if not step.name.startswith("[internal]")]
        return steps[-1] if steps else None

    @property
    def now(self) -> tuple[str, str] | None:
        """The image with the running step, and that step's last line."""
        step = self.running
        if step is None:
            return None
        return f"{self._image} {step.title}", step.output[-1] if step.output else ""

    def feed(self, line: str) -> None:
        """Take the next line of the output."""
        found = _LINE.fullmatch(line)
        if found is None or found[1] == "0":  # number 0 only names the builder
            if line.startswith("ERROR: "):
                self.error = line.removeprefix("ERROR: ")
            return
        number, text = found.groups()
        step = self._seen.get(number)
        if step is None:
            self._seen[number] = self._open[number] = Step(text)
        elif text.startswith("ERROR: "):
            self.failed, self.error = step, text.removeprefix("ERROR: ")
            self._open.pop(number, None)
        elif _ENDED.match(text):
            self._open.pop(number, None)
        elif text not in {step.name, "..."}:  # both only say that another step spoke between
            step.output.append(_CLOCK.sub("", text, count=1))
            self._open[number] = self._open.pop(number, step)
