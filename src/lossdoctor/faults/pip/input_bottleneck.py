"""The run waits for data: the model stands still while the next batch is read, decoded or put together.

What you see
------------
The score is right and the run is slow. A faster device changes nothing; processor or accelerator are hardly busy.

Why it happens
--------------
Without worker processes a batch is made between two steps: files read, images decoded, rows picked one by one in Python. Or the
workers are there and cannot keep up with the model.

How it is told apart
--------------------
The time inside the loader's `next` (or, without a loader, the time in which the thread neither computed nor waited for a core) is
divided by the whole step, over ten stretches of the run. It has to be most of the step nearly all the time: filling a cache in the first
epoch, starting workers, or a busy machine that holds the thread up now and then do not last. An environment that computes between two
steps is work, not waiting.

What to do
----------
Tensors in memory: take whole batches (slice them, or give the data set `__getitems__`). Files: keep what was decoded, or let workers
read ahead (`num_workers`, `persistent_workers`, `prefetch_factor`). `lossdoctor speed` measures which of them pays.

When this is wrong
------------------
A loader that trains something itself, as a replay buffer that plays episodes, counts as waiting. Batches that are computed by hand between
two steps, without a loader, are missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lossdoctor.core.diagnosis import BiggerMachine, Evidence, Severity
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import Detection, Example, Fault, Level, Plant, Treatment
from lossdoctor.core.run import Row, Series, Training
from lossdoctor.derive.strength import slope
from lossdoctor.derive.wait import Wait, wait_share

# Share of a step: healthy scripts on a busy machine .0 to .30 (whole gaps up to .48, field guide), slow loading .67 to .97.
ORDINARY, MOST = 0.35, 0.65
MOSTLY = 0.5  # of the loader's time
SHORT = 1.0  # s of waiting in the whole run, below which nobody gains by mending it


def detect(training: Training) -> Detection | None:
    """Measure the share of each step that is spent waiting for data."""
    loader, idle = (training.signals.get(name) for name in ("loader_seconds", "idle_seconds"))
    if loader is None and idle is None:
        raise SignalMissing("loader_seconds")
    passes = [_span(row) for row in training.rows.get("validation", [])]
    found = wait_share(training.series("wall"), loader, idle, training.signals.get("gap_seconds"), [each for each in passes if each])
    if found is None:
        return None
    severity: Severity | None = "advice" if found.total_seconds < SHORT else None
    where = training.where("loader") or training.where("forward")
    evidence, gain = _evidence(training, found), {"time": found.share}
    return Detection(slope(found.steady, ORDINARY, MOST), evidence, _advice(training, found), where, severity, gain)


def _span(row: Row) -> tuple[float, float] | None:
    began, seconds = row.get("began"), row.get("seconds")
    if not isinstance(began, int | float) or not isinstance(seconds, int | float):
        return None
    return (float(began), float(began + seconds))


def _evidence(training: Training, found: Wait) -> tuple[Evidence, ...]:
    steps = training.series("wall").steps
    inside = training.signals.get("loader_seconds", Series.of([])).finite().values.sum() > 0
    seen = f"{found.share:.0%} of a step: {1e3 * found.wait_seconds:.3g} of {1e3 * found.step_seconds:.3g} ms"
    note = f"{found.total_seconds:.3g} s of waiting in all; without it the run would be at most {found.speedup:.2g} times as fast"
    span = (int(steps[0]), int(steps[-1]))
    return (Evidence("loader_seconds" if inside else "idle_seconds", span, seen, f"below {ORDINARY:.0%}", note),)


def _advice(training: Training, found: Wait) -> str:
    workers = (training.fact("loader") or {}).get("workers")
    if workers is None:
        return "Prepare batches ahead of the step: a DataLoader with workers, or data kept in memory in the form that the model takes."
    if workers:
        return (
            f"{workers} workers cannot keep up: more of them, persistent_workers=True, a larger prefetch_factor, or keep what was decoded."
        )
    collate = _collate_share(training)
    if collate is not None and collate > MOSTLY:
        return (
            f"{collate:.0%} of it is the collate function, in the training process: let it work on whole tensors (torch.stack), "
            "slice whole batches from the data, or set num_workers."
        )
    told = "The loader works" if collate is None else f"{1 - collate:.0%} of it is the data set, row by row"
    return f"{told}, in the training process: slice whole batches from tensors in memory, keep what was decoded, or set num_workers."


def _collate_share(training: Training) -> float | None:
    share = training.run_facts.get("collate_share")
    return float(share) if isinstance(share, int | float) and 0.0 <= share <= 1.0 else None


def _run(wait: float, work: float = 0.002, steps: int = 200, idle: bool = False, first: float = 0.0, **facts: object) -> Training:
    """Build a training whose steps wait and work for so many seconds; the first tenth waits `first` longer."""
    waits = [wait + (first if i < steps // 10 else 0.0) for i in range(steps)]
    wall = [sum(waits[: i + 1]) + work * (i + 1) for i in range(steps)]
    signals = {"wall": Series.of(wall), "idle_seconds" if idle else "loader_seconds": Series.of(waits)}
    return Training(signals=signals, facts=dict(facts))


def _held_up(gaps: Sequence[float]) -> Training:
    """Build a training that waits for no data and whose thread is held up before some steps."""
    wall = [sum(gaps[: i + 1]) + 0.001 * (i + 1) for i in range(len(gaps))]
    return Training(signals={"wall": Series.of(wall), "idle_seconds": Series.of(gaps), "gap_seconds": Series.of(gaps)})


def _slow(kinds: tuple[str, ...], *seconds: float) -> Iterator[Plant]:
    """Build the plants of a kind of recipe: a pause for each row that a data set hands out, or for each batch cut by hand."""
    levels: tuple[Level, ...] = ("mild", "middle", "severe")
    for level, pause in zip(levels, seconds, strict=True):
        if kinds[0] in ("loader", "sequences"):
            line, place = r"return self\.inputs\[index\], self\.targets\[index\]", f"time.sleep({pause} / BATCH)"
        else:
            line, place = r"yield x_train\[rows\], y_train\[rows\].*", f"time.sleep({pause})"
        yield Plant(level, "data", rf"^( +)({line})$", rf"\1{place}\n\1\2", kinds=kinds)


FAULT = Fault(
    code="PIP001",
    slug="input-bottleneck",
    title="The run waits for data",
    detect=detect,
    needs=("wall",),
    fix="Keep the data in memory in the form the model takes, fetch whole batches, or let loader workers read ahead.",
    severity="warning",
    examples=(
        Example("sick", _run(0.014, loader={"workers": 0}), "rows are picked one by one"),
        Example("sick", _run(0.4, 0.03, loader={"workers": 2}), "two workers cannot keep up"),
        Example("sick", _run(0.02, idle=True), "a loop that reads files itself"),
        Example("healthy", _run(0.0003), "in memory"),
        Example("healthy", _run(0.0008, loader={"workers": 0}), "a small model beside an ordinary loader"),
        Example("look-alike", _run(0.0003, first=0.5), "the first epoch fills a cache"),
        Example("look-alike", _held_up([0.02 if i % 5 == 0 else 0.0001 for i in range(200)]), "a busy machine holds the thread up"),
        Example("look-alike", _held_up([0.0] * 200), "an environment computes between steps and is never idle"),
        Example("known miss", _held_up([0.03 if i % 8 == 0 else 0.0001 for i in range(200)]), "reads a file at every eighth step by hand"),
    ),
    # Seconds per batch, so that they are most of a step of each kind of recipe; the first that fits counts.
    plants=(
        *_slow(("language-model",), 0.05, 0.1, 0.2),
        *_slow(("sequences",), 0.015, 0.03, 0.09),
        *_slow(("by-hand",), 0.004, 0.012, 0.03),
        *_slow(("loader",), 0.004, 0.012, 0.03),
    ),
    treatment=Treatment("feed", {}, moves="wait_share", direction="down", safety="safe"),
    bigger_machine=BiggerMachine("no", "a faster device would only wait longer; faster loading is what helps"),
)
