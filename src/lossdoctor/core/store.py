"""Read a run folder into a `Run`. Lines that a kill has cut are skipped; the format stands in docs/architecture.md."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.ranks import join_ranks
from lossdoctor.core.run import Experiment, Run, Series, Training
from lossdoctor.core.run import Row as StructuredRow

FORMAT = 1
_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def load_run(folder: Path, alone: bool = False) -> Run:
    """Read the run in a folder.

    Args:
        folder: a run folder as `record/writer.py` leaves it, finished or not.
        alone: leave out what the other ranks of a distributed training recorded.

    Raises:
        LossdoctorError: where the folder holds no run, or one of a newer format.

    Example:
        >>> load_run(Path("no/such/run"))
        Traceback (most recent call last):
        lossdoctor.core.errors.LossdoctorError: no run in no/such/run
    """
    facts = _read_json(folder / "run.json")
    if not facts:
        raise LossdoctorError(f"no run in {folder}", status=2)
    if facts.get("format", 0) > FORMAT:
        raise LossdoctorError(f"{folder} was written by a newer lossdoctor (format {facts['format']}); upgrade to read it", status=2)
    facts["ended"] = _read_json(folder / "end.json")
    run = Run(facts=facts)
    tracks = _Tracks(run)
    for segment in sorted(folder.glob("record-*.jsonl"), key=_segment_order):
        for line in _lines(segment):
            tracks.take(line)
    run.trainings = _trainings(tracks)
    if not alone and "rank" in run.facts:
        join_ranks(run, folder, partial(load_run, alone=True))
    for training in run.trainings:
        for part in (training, *training.roles):
            part.run_facts = run.facts
    return run


def _segment_order(path: Path) -> tuple[str, int]:
    stem, _, number = path.stem.rpartition("-")
    return (stem, int(number) if number.isdigit() else 0)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as stream:
        for raw in stream:
            try:
                value = json.loads(raw)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


class _Track:
    """Gather the lines of one track."""

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self.columns: dict[str, list[Any]] = {}
        self.scalars: dict[str, list[tuple[int, float]]] = {}
        self.vectors: dict[str, list[tuple[int, Any]]] = {}
        self.training = Training(facts={"what": head.get("what", "optimizer"), "parameters": head.get("parameters", [])})

    @property
    def keys(self) -> set[int]:
        return {parameter["key"] for parameter in self.head.get("parameters", [])}

    def steps(self, columns: dict[str, str]) -> None:
        arrays = {name: np.frombuffer(base64.b64decode(text), dtype="<f8") for name, text in columns.items()}
        taken = arrays["step"].astype(np.int64)
        before = [(steps, np.full(len(steps), np.nan)) for steps, _ in self.columns.get("step", [])]
        for name in {**self.columns, **arrays}:  # a column of nothing but NaN is not written
            values = arrays.get(name, np.full(len(taken), np.nan))
            self.columns.setdefault(name, before.copy()).append((taken, values))

    def sample(self, line: dict[str, Any]) -> None:
        name, step = line["signal"], int(line["step"])
        if "packed" in line:
            self.vectors.setdefault(name, []).append((step, np.frombuffer(base64.b64decode(line["packed"]), dtype="<f4")))
        elif "fields" in line:
            self.training.rows.setdefault(name, []).append(StructuredRow(step, restore(line["fields"])))
        else:
            self.scalars.setdefault(name, []).append((step, restore(line["value"])))

    def finish(self) -> Training:
        for name, parts in self.columns.items():
            if name != "step":
                steps = np.concatenate([part[0] for part in parts])
                self.training.signals[name] = Series(steps, np.concatenate([part[1] for part in parts]).astype(np.float64))
        for name, values in self.scalars.items():
            self.training.signals[name] = Series.of([value for _, value in values], [step for step, _ in values])
        names = tuple(parameter.get("name", "") for parameter in self.head.get("parameters", []))
        for name, rows in self.vectors.items():
            same = [row for row in rows if len(row[1]) == len(names)]
            if same:
                self.training.signals[name] = Series.of([row[1] for row in same], [row[0] for row in same], names)
        _decide_loss(self.training)
        return self.training

    @property
    def span(self) -> tuple[float, float]:
        wall = [part[1] for part in self.columns.get("wall", [])]
        began = float(self.head.get("began", 0.0))
        return (float(wall[0][0]), float(wall[-1][-1])) if wall else (began, began)


class _Tracks:
    """Sort the lines of a record by track."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.by_number: dict[int, _Track] = {}
        self.experiments: list[tuple[int | None, Experiment]] = []

    def take(self, line: dict[str, Any]) -> None:
        try:
            self._take(line)
        except (KeyError, TypeError, ValueError, binascii.Error):
            return  # a line that a kill or a full disk has damaged

    def _take(self, line: dict[str, Any]) -> None:
        kind = line["kind"]
        if kind == "track":
            self.by_number.setdefault(line["track"], _Track(line))
        elif kind == "note":
            self.run.notes.append(str(line["text"]))
        elif kind == "experiment":
            experiment = Experiment(line["name"], line["status"], float(line["seconds"]), restore(line["facts"]))
            self.experiments.append((line.get("track"), experiment))
        elif line.get("track") is None:
            self.run.facts[line["name"]] = restore(line["value"])
        elif kind == "steps":
            self.by_number[line["track"]].steps(line["columns"])
        elif kind == "sample":
            self.by_number[line["track"]].sample(line)
        elif kind == "fact":
            self.by_number[line["track"]].training.facts[line["name"]] = restore(line["value"])


def restore(value: Any) -> Any:
    """Turn the strings that stand for non-finite numbers back into numbers, anywhere in a JSON value.

    Example:
        >>> restore({"loss": "inf"})
        {'loss': inf}
    """
    if isinstance(value, str):
        return _SPECIAL.get(value, value)
    if isinstance(value, list):
        return [restore(item) for item in value]
    if isinstance(value, dict):
        return {name: restore(item) for name, item in value.items()}
    return value


def _decide_loss(training: Training) -> None:
    """Set `loss`: the loss call's value where it is a constant ratio of the backward value, else the backward value."""
    counts, backward, call = (training.signals.get(name) for name in ("backwards", "backward_value", "call_value"))
    if counts is not None:  # a step without a backward has no loss; one whose values are all NaN has no column
        counted = counts.values > 0
        counts, backward, call = (_at(series, counts.steps, counted) for series in (counts, backward, call))
    if backward is None or not len(backward):
        return
    mean = backward.values / counts.values if counts is not None else backward.values
    chosen, source = mean, "backward"
    if call is not None:
        with np.errstate(all="ignore"):
            ratio = (mean / call.values)[np.isfinite(mean) & np.isfinite(call.values) & (call.values != 0)]
        known = np.isfinite(call.values) == np.isfinite(mean)
        # 1 % covers float16 rounding of a scaled loss; a sum of terms varies far more from step to step.
        if len(ratio) and known.mean() > 0.99 and np.ptp(np.percentile(ratio, [5, 95])) <= 0.01 * abs(np.median(ratio)):
            chosen, source = call.values, "call"
    training.facts["loss_source"] = source
    training.signals["loss"] = Series(backward.steps, np.asarray(chosen, dtype=np.float64))


def _at(series: Series | None, steps: np.ndarray, keep: np.ndarray) -> Series:
    values = np.full(len(steps), np.nan) if series is None else series.values
    return Series(steps[keep], values[keep])


def _trainings(tracks: _Tracks) -> list[Training]:
    kept = _drop_accumulation([track for track in tracks.by_number.values() if track.columns])
    groups: list[list[_Track]] = []
    for track in sorted(kept, key=lambda each: each.span[0]):
        group = next((group for group in groups if _same_training(group, track)), None)
        if group is None:
            groups.append([track])
        else:
            group.append(track)
    return [_training(index, groups, tracks) for index in range(len(groups))]


def _same_training(group: list[_Track], track: _Track) -> bool:
    overlap = any(track.span[0] < other.span[1] for other in group)
    return overlap and all(not (track.keys & other.keys) for other in group)


def _drop_accumulation(tracks: list[_Track]) -> list[_Track]:
    stepped = [track for track in tracks if track.head.get("what") != "manual"]
    return stepped + [
        track
        for track in tracks
        if track.head.get("what") == "manual" and not any(track.keys & other.keys and other.span[0] >= track.span[0] for other in stepped)
    ]


def _training(index: int, groups: list[list[_Track]], tracks: _Tracks) -> Training:
    group = groups[index]
    parts = [track.finish() for track in group]
    main = max(range(len(parts)), key=lambda i: (len(parts[i].signals.get("loss", ())), -i))
    training = parts[main]
    training.index = index
    keys = set().union(*(track.keys for track in group))
    earlier = [i for i in range(index) if any(keys & track.keys for track in groups[i])]
    training.phase_of = earlier[-1] if earlier else None
    if len(parts) > 1:
        training.roles = [_role(part) for part in parts]
    numbers = {number for number, track in tracks.by_number.items() if track in group}
    for number, experiment in tracks.experiments:
        if number in numbers or (number is None and index == 0):  # a replay is of what was captured: the first training
            training.experiments[experiment.name] = experiment
    return training


def _role(part: Training) -> Training:
    return Training(index=part.index, signals=part.signals, rows=part.rows, facts=part.facts)
