"""Find the runs in a folder: run folders of trackers, and files that hold a log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.run import Run, Series
from lossdoctor.readers.mlflow_files import metrics_folder
from lossdoctor.readers.parts.load import load
from lossdoctor.readers.parts.names import word_set
from lossdoctor.readers.parts.reader import choose
from lossdoctor.readers.parts.source import Source
from lossdoctor.readers.tensorboard import event_files
from lossdoctor.readers.wandb import wandb_file

MOST_FILES, DEEPEST = 5000, 8
# Certainty from which a file in a folder is taken for a log: general text only where nothing better is known of it.
SURE, PERHAPS = 0.6, 0.1
LEAST_VALUES = 3
# Files that are no logs, by the ending that says so; only to save the time of opening them.
_OTHERS = word_set(
    ".py .pyc .ipynb .yaml .yml .toml .cfg .ini .png .jpg .jpeg .gif .svg .pdf .pt .pth .bin .ckpt .safetensors .npy .npz .h5",
    ".keras .zip .tar .gz .so .html .css .js .ts .sh .c .cc .cpp .h .cu .rs .go .java .lock .model .vocab .mp4 .wav .parquet .arrow .onnx",
)
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "code", "artifacts", "checkpoints"})


def find(folder: Path, mapped: Mapping[str, str] | None = None) -> list[tuple[str, Run]]:
    """Read all runs in a folder and those below; one that is the beginning of another is left out.

    Args:
        folder: it is searched eight levels deep, 5,000 files of each folder at most.
        mapped: column to role, as the user said; logs without such a column are left out.

    Returns:
        Pairs of name (the path within the folder) and run.
    """
    found: list[tuple[str, Run]] = []
    for path in _candidates(folder):
        run = _try(path, mapped)
        if run is not None:
            name = path.relative_to(folder).as_posix() if path != folder else folder.name
            found.append((name, run))
    return _without_beginnings(found)


def _candidates(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield folders that are runs, and files that may be logs; beside event files, which make one run, there may be others."""
    if _is_run(folder):
        yield folder
        return
    events = set(event_files(folder, beside=False))
    if events:
        yield folder
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries[:MOST_FILES]:
        if entry.name.startswith(".") or entry.name in _SKIPPED or entry.is_symlink():
            continue
        if entry.is_dir() and depth < DEEPEST:
            yield from _candidates(Path(entry.path), depth + 1)
        elif entry.is_file() and Path(entry.path) not in events and Path(entry.name).suffix.lower() not in _OTHERS:
            yield Path(entry.path)


def _is_run(folder: Path) -> bool:
    if (folder / "run.json").is_file() and any(folder.glob("record-*.jsonl")):
        return True
    return metrics_folder(folder) is not None or wandb_file(folder) is not None


def _try(path: Path, mapped: Mapping[str, str] | None) -> Run | None:
    source = Source(path)
    if not source.is_folder and not _looks_like_a_log(source):
        return None
    try:
        if source.is_folder and (path / "run.json").is_file():
            from lossdoctor.core.store import load_run

            return load_run(path)
        return load(source, mapped)
    except LossdoctorError:
        return None


def _looks_like_a_log(source: Source) -> bool:
    if not source.size:
        return False
    sure = [reader.knows(source) for reader in choose(source)[:1]]
    if not sure or sure[0] < PERHAPS:
        return False
    if sure[0] >= SURE:
        return True
    try:
        run = load(source)
    except LossdoctorError:
        return False
    return any(len(training.signals.get("loss", ())) >= LEAST_VALUES for training in run.trainings)


def _without_beginnings(found: list[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """Leave out a run whose curve another run begins with: an earlier checkpoint of it, or the same run in another file."""
    curves = [_curve(run) for _, run in found]
    kept = []
    for index, pair in enumerate(found):
        longer = (other for other in range(len(found)) if other != index and (len(curves[other]), -other) > (len(curves[index]), -index))
        if not any(_begins(curves[index], curves[other]) for other in longer):
            kept.append(pair)
    return kept


def _curve(run: Run) -> Series:
    return max((training.signals.get("loss", Series.of([])) for training in run.trainings), key=len, default=Series.of([]))


def _begins(short: Series, long: Series) -> bool:
    count = len(short)
    if count < LEAST_VALUES or not np.array_equal(short.steps, long.steps[:count]):
        return False
    # 1e-3: the same figures, printed with fewer digits
    return bool(np.allclose(short.values, long.values[:count], rtol=1e-3, equal_nan=True))
