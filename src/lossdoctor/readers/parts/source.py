"""The log to read: a file, a folder or standard input; opened again and again, never read whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, BinaryIO

from lossdoctor.core.errors import UsageError

HEAD_BYTES = 1 << 18
BLOCK_BYTES = 1 << 20
# A line longer than this is cut: no log line is, and a file without line ends must not fill the memory.
LONGEST_LINE = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|\x00|\x08")
_NUMBERS = re.compile(r"[-+0-9.eE,;\t ]*")
_BREAKS = re.compile(r"[\r\n]+")
_MARKS = ((b"\xff\xfe\x00\x00", "utf-32-le"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))
# What reading a damaged or vanished file may raise.
DAMAGE = (OSError, EOFError, zlib.error)


class Source:
    """Give a log's name, its first bytes and fresh streams over it.

    Args:
        path: file or folder; `-` is standard input, which is kept in a temporary file beyond 64 MB.

    Raises:
        UsageError: where there is no such file, or it may not be read.

    Example:
        >>> Source("no/such.log")
        Traceback (most recent call last):
        lossdoctor.core.errors.UsageError: there is no file or folder 'no/such.log'
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.path = Path(path)
        self.is_folder = self.name != "-" and self.path.is_dir()
        self._spooled: IO[bytes] | None = None
        if self.name == "-":
            self._spooled = _spool(sys.stdin.buffer)
        elif not self.path.exists():
            raise UsageError(f"there is no file or folder {self.name!r}")
        elif not self.is_folder and not self.path.is_file():
            raise UsageError(f"{self.name!r} is neither a file nor a folder")

    @classmethod
    def of(cls, content: bytes, name: str = "log") -> Source:
        """Make a source of bytes in memory."""
        made = cls.__new__(cls)
        made.name, made.path, made.is_folder = name, Path(name), False
        made._spooled = io.BytesIO(content)
        return made

    @property
    def is_text(self) -> bool:
        """Tell whether it is a file whose first bytes are text."""
        return not self.is_folder and not (b"\x00" in self.head[:512] and self.encoding == "utf-8")

    @property
    def on_disk(self) -> bool:
        """Tell whether it is a plain file that may be mapped into memory."""
        return self._spooled is None and not self.is_folder and not self._compressed

    @cached_property
    def size(self) -> int:
        """Bytes of the file as it lies there."""
        if self._spooled is not None:
            self._spooled.seek(0, io.SEEK_END)  # before Python 3.11 it does not return the place
            return self._spooled.tell()
        return 0 if self.is_folder else self.path.stat().st_size

    @cached_property
    def _compressed(self) -> bool:
        with self._raw() as stream:
            return stream.read(2) == b"\x1f\x8b"

    @contextlib.contextmanager
    def _raw(self) -> Iterator[BinaryIO | IO[bytes]]:
        if self._spooled is not None:
            self._spooled.seek(0)
            yield self._spooled
            return
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise UsageError(f"cannot read {self.name!r}: {error.strerror or error}") from error
        with stream:
            yield stream

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO | IO[bytes]]:
        """Open a fresh binary stream; gzip is undone on the way."""
        compressed = self._compressed  # looked at first: a kept stream has one position for all
        with self._raw() as raw:
            if compressed:
                with gzip.GzipFile(fileobj=raw) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield raw

    @cached_property
    def head(self) -> bytes:
        """The first 256 KB."""
        if self.is_folder:
            return b""
        with self.open() as stream, contextlib.suppress(*DAMAGE):
            return stream.read(HEAD_BYTES)
        return b""

    @cached_property
    def sample(self) -> bytes:
        """The first 256 KB and, of a longer plain file, 128 KB from its middle: what a format is chosen by."""
        if self.size <= len(self.head) or self._compressed:
            return self.head
        with self.open() as stream:
            stream.seek(max(self.size // 2, len(self.head)))
            return self.head + b"\n" + stream.read(HEAD_BYTES // 2)

    @cached_property
    def encoding(self) -> str:
        """The text encoding by its mark, or by the zero bytes of two-byte text; UTF-8 otherwise."""
        for mark, name in _MARKS:
            if self.head.startswith(mark):
                return name
        odd, even = self.head[1:4000:2].count(0), self.head[0:4000:2].count(0)
        few = max(len(self.head[:4000]) // 8, 1)
        if self.head and (odd > 3 * few and even < few):
            return "utf-16-le"
        return "utf-16-be" if self.head and (even > 3 * few and odd < few) else "utf-8"

    @cached_property
    def text(self) -> str:
        """The sample as text."""
        return _ESCAPES.sub("", self.sample.decode(self.encoding, errors="replace").lstrip("\ufeff"))

    @cached_property
    def sample_lines(self) -> list[str]:
        """Lines of the sample, a thousand from its begin and five hundred from its end, each cut at 8,192 letters."""
        lines = [line[:8192] for line in _BREAKS.split(self.text) if line]
        return lines if len(lines) <= 1500 else lines[:1000] + lines[-500:]

    @cached_property
    def telling_lines(self) -> list[str]:
        """Those of them that hold more than numbers and what separates them: only they can name a format."""
        return [line for line in self.sample_lines if not _NUMBERS.fullmatch(line)]

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in blocks; a stream that breaks off (a damaged gzip) ends there."""
        with self.open() as stream:
            while True:
                try:
                    block = stream.read(size)
                except DAMAGE:
                    return
                if not block:
                    return
                yield block

    def lines(self) -> Iterator[str]:
        """Yield the lines without colours and blank ones; a carriage return ends a line as well (progress bars)."""
        import codecs

        decode = codecs.getincrementaldecoder(self.encoding)(errors="replace").decode
        rest = ""
        for block in self.blocks():
            parts = _BREAKS.split(rest + decode(block))
            rest = parts.pop()[:LONGEST_LINE]
            yield from _cleaned(parts)
        yield from _cleaned([rest + decode(b"", True)])


def _cleaned(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if "\x1b" in line or "\x00" in line or "\x08" in line:
            line = _ESCAPES.sub("", line)
        line = line.lstrip("\ufeff")
        if line and not line.isspace():
            yield line[:LONGEST_LINE]


def _spool(stream: BinaryIO | IO[bytes]) -> IO[bytes]:
    held = tempfile.SpooledTemporaryFile(max_size=1 << 26)  # noqa: SIM115
    while block := stream.read(BLOCK_BYTES):
        held.write(block)
    return held
