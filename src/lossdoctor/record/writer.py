"""Append to a run folder so that every flushed line survives a kill, and keep the folder within a bound.

The format stands in docs/architecture.md. Nothing here raises: a full disk ends the record, never the training.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lossdoctor.record.thinning import halve

FORMAT = 1  # as in core/store.py, which is not imported here: it needs numpy, and a script may not
KEPT_RUNS = 20  # DESIGN, promise 4
SEGMENT_BYTES = 4 << 20  # one segment is read, thinned and written again in some 50 ms
FOLDER_BYTES = 64 << 20  # about 300,000 steps at full density (200 bytes a step)
_FAILURES = 3  # writes that may fail one after the other before the record is given up
_NAME = re.compile(r"\d{8}-\d{6}-(\d+)(-\d+)?")


class Writer:
    """Write one run folder.

    Args:
        out: the folder of all runs, absolute; made with the first line.
        name: the run's own folder in it.
        head: what `run.json` holds beside the format.
        private: what `private.json` holds, readable by its owner only; no file where None.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as scratch:
        ...     writer = Writer(Path(scratch) / "runs", "20250101-000000-1", {"script": "train.py"})
        ...     writer.append([{"kind": "note", "text": "hello"}])
        ...     writer.close()
        ...     sorted(path.name for path in writer.folder.iterdir())
        ['record-1-0000.jsonl', 'run.json']
    """

    def __init__(self, out: Path, name: str, head: Mapping[str, Any], private: Mapping[str, Any] | None = None) -> None:
        self.folder = out / name
        self.made = False
        self.failed = ""
        self._head = head
        self._private = private
        self._pid = name.split("-")[2]
        self._stream: int | None = None
        self._sizes: list[int] = []
        self._failures = 0

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write lines and hand them to the system at once; after repeated failures do nothing more."""
        data = b"".join(encode(line) for line in lines)
        if not data or self._failures >= _FAILURES:
            return
        try:
            self._write(data)
            self._failures = 0
        except OSError as error:
            self._failures += 1
            self.failed = f"broke: writer: {error}"
            self._close_stream()  # what was cut off ends with its segment

    def close(self) -> None:
        """Close the segment that is written to."""
        self._close_stream()

    def end(self, facts: Mapping[str, Any]) -> None:
        """Write `end.json`."""
        try:
            (self.folder / "end.json").write_bytes(encode(facts))
        except OSError as error:
            self.failed = f"broke: writer: {error}"

    def _write(self, data: bytes) -> None:
        if not self.made:
            self._make()
        if self._stream is None or self._sizes[-1] > SEGMENT_BYTES:
            self._next_segment()
        assert self._stream is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._stream, view) :]
        self._sizes[-1] += len(data)

    def _make(self) -> None:
        out = self.folder.parent
        _prepare(out)
        self.folder.mkdir()
        (self.folder / "run.json").write_bytes(encode({"format": FORMAT, **self._head}))
        if self._private is not None:
            _write_private(self.folder / "private.json", encode(self._private))
        self.made = True
        forget_old_runs(out, KEPT_RUNS)

    def _next_segment(self) -> None:
        self._close_stream()
        path = self._segment(len(self._sizes))
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._sizes.append(0)
        while sum(self._sizes) > FOLDER_BYTES and self._thin():
            pass

    def _thin(self) -> bool:
        """Rewrite a closed segment at half density, the largest that gains by it; False where none does."""
        closed = range(len(self._sizes) - 1)
        return any(self._rewrite(index) for index in sorted(closed, key=lambda index: -self._sizes[index]))

    def _rewrite(self, index: int) -> bool:
        path = self._segment(index)
        data = b"".join(encode(line) for line in halve(path))
        if len(data) > 0.9 * self._sizes[index]:
            return False
        scratch = path.with_suffix(".tmp")
        scratch.write_bytes(data)
        os.replace(scratch, path)
        self._sizes[index] = len(data)
        return True

    def _segment(self, index: int) -> Path:
        return self.folder / f"record-{self._pid}-{index:04d}.jsonl"

    def _close_stream(self) -> None:
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None


def encode(line: Mapping[str, Any]) -> bytes:
    """Turn a mapping into one line of JSON; numbers that are not finite become strings.

    Example:
        >>> encode({"loss": float("nan")})
        b'{"loss":"nan"}\\n'
    """
    try:
        text = json.dumps(line, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError):
        text = json.dumps(plain(line), separators=(",", ":"))
    return text.encode() + b"\n"


def plain(value: Any) -> Any:
    """Turn a value into what JSON can hold.

    Example:
        >>> plain({"a": (1, float("-inf"))})
        {'a': [1, '-inf']}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else ("nan" if value != value else "inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def keep_run(folder: Path, out: Path) -> Path:
    """Move a run's folder into the folder of all runs, under a name that is free; return where it is."""
    _prepare(out)
    target, number = out / folder.name, 2
    while target.exists():
        target, number = out / f"{folder.name}-{number}", number + 1
    shutil.move(folder, target)
    forget_old_runs(out, KEPT_RUNS)
    return target


def _prepare(out: Path) -> None:
    fresh = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    if fresh or out.name == ".lossdoctor":
        (out / ".gitignore").write_text("*\n")


def forget_old_runs(out: Path, keep: int) -> None:
    """Delete the oldest run folders beyond `keep`; one whose process still runs stays."""
    runs = sorted(path for path in out.iterdir() if _NAME.fullmatch(path.name) and (path / "run.json").exists())
    for path in runs[: max(0, len(runs) - keep)]:
        if (path / "end.json").exists() or not _alive(int(path.name.split("-")[2])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _write_private(path: Path, data: bytes) -> None:
    stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(stream, data)
    finally:
        os.close(stream)
