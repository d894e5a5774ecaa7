"""A bench as a picture, by matplotlib, which is an extra."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zluda_stack.bench import metrics, statistics
from zluda_stack.bench.metrics import Metric, What
from zluda_stack.bench.saved import Run
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
# Colours that people with any colour vision tell apart, and markers beside them: M. Okabe and
# K. Ito, Color Universal Design, 2008.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_WIDTH, _HEIGHT = 4.2, 3.2  # inches of one panel


def require(path: Path) -> None:
    """Raises UsageError for another format, HostProblem where matplotlib is missing."""
    if path.suffix not in FORMATS:
        raise UsageError(
            f"a picture is {' or '.join(FORMATS)}, and {path.name} is neither",
            "Name it so: --picture bench.png.",
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise HostProblem(
            "a picture takes matplotlib, which is not installed",
            "In the folder of zluda-stack's sources: pip install '.[bench]'",
        ) from error


def draw(run: Run, path: Path) -> None:
    """Write a panel for each prompt and metric: medians by clients, with quartiles, by target.

    Raises as `require` does, and HostProblem when the file cannot be written.
    """
    require(path)
    from matplotlib.figure import Figure  # no window, no state

    series = {target: metrics.series(run.waves, target) for target in run.names}
    panels = sorted(
        {(what.prompt, what.metric) for found in series.values() for what in found},
        key=lambda panel: (list(run.prompts).index(panel[0]), list(Metric).index(panel[1])),
    )
    if not panels:
        raise UsageError("nothing was measured, so there is nothing to draw")
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * lines + 0.6), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for panel, axis in zip(panels, axes, strict=False):
        _panel(axis, series, *panel)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    handles, labels = next(iter(figure.axes)).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    figure.suptitle(_title(run))
    image = io.BytesIO()
    # Without a date the same bench gives the same picture.
    about: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(image, format=path.suffix[1:], dpi=150, metadata=about)
    write_atomic(path, image.getvalue())


def _panel(axis: Axes, series: dict[str, metrics.Series], prompt: str, metric: Metric) -> None:
    scale, unit = (1000.0, "ms") if metric.unit == "s" else (1.0, metric.unit)
    clients = sorted(
        {
            what.clients
            for one in series.values()
            for what in one
            if (what.prompt, what.metric) == (prompt, metric)
        }
    )
    for place, (target, found) in enumerate(series.items()):
        # Beside each other, so that no bar hides another.
        shift = (place - (len(series) - 1) / 2) * 0.12
        points = [
            (index + shift, statistics.spread([value.number * scale for value in found[what]]))
            for index, count in enumerate(clients)
            if (what := What(prompt=prompt, clients=count, metric=metric)) in found
        ]
        axis.errorbar(
            [x for x, _ in points],
            [one.median for _, one in points],
            yerr=(
                [one.median - one.lower for _, one in points],
                [one.upper - one.median for _, one in points],
            ),
            color=_COLORS[place % len(_COLORS)],
            marker=_MARKERS[place % len(_MARKERS)],
            linestyle="-" if len(clients) > 1 else "none",
            capsize=4,
            label=target,
        )
    axis.set_title(f"{prompt}: {metric.value}")
    axis.set_xlabel("clients at once")
    axis.set_ylabel(unit)
    axis.set_xticks(range(len(clients)), [str(count) for count in clients])
    axis.set_xlim(-0.6, len(clients) - 0.4)
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.3)


def _title(run: Run) -> str:
    models = {target.model for target in run.targets if target.model}
    model = f" of {models.pop()}" if len(models) == 1 else ""
    return f"Speed{model}: medians and quartiles of {2 * run.rounds} visits, {run.began[:10]}"
