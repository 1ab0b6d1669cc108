"""Parse blocks of plain numbers with pyarrow, where it is installed and the text is long enough to be worth its import."""

from __future__ import annotations

import importlib.util
import io
from functools import lru_cache
from typing import Any

import numpy as np

from lossdoctor.core.run import Floats
from lossdoctor.readers.parts.decimals import Flags

# Importing pyarrow takes about as long as our own parser needs for 5 MB (`make bench-read` has a file of 38 MB).
WORTH_BYTES = 1 << 23


@lru_cache(maxsize=1)
def installed() -> bool:
    """Tell whether pyarrow can be imported."""
    return importlib.util.find_spec("pyarrow") is not None


def parse_block(block: bytes, delimiter: str, width: int) -> tuple[Floats, Flags] | None:
    """Parse lines of numbers.

    Args:
        block: whole lines.
        delimiter: one character.
        width: fields in a line.

    Returns:
        Values, shape (lines, width), and which fields are empty; None where a line has another width or a field is no number.

    Example:
        >>> parse_block(b"1,2.5\\n2,\\n", ",", 2)[0].tolist() if installed() else [[1.0, 2.5], [2.0, float("nan")]]
        [[1.0, 2.5], [2.0, nan]]
    """
    from pyarrow import ArrowException, csv, float64

    names = [str(place) for place in range(width)]
    # One thread: beside a run that still goes on, its cores are not ours.
    read = csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block))
    parse = csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False)
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, float64()), null_values=[""])
    try:
        table = csv.read_csv(io.BytesIO(block), read_options=read, parse_options=parse, convert_options=convert)
    except ArrowException:
        return None
    columns = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
    values = np.stack([_values(column) for column in columns], axis=1)
    return values, np.stack([_empty(column) for column in columns], axis=1)


def _values(column: Any) -> Floats:
    """Take the numbers from their buffer: pyarrow's own way to numpy imports pandas."""
    held = np.frombuffer(column.buffers()[1], dtype=np.float64)[column.offset : column.offset + len(column)]
    return np.where(_empty(column), np.nan, held) if column.null_count else held


def _empty(column: Any) -> Flags:
    if not column.null_count:
        return np.zeros(len(column), dtype=np.bool_)
    present = np.unpackbits(np.frombuffer(column.buffers()[0], dtype=np.uint8), bitorder="little")
    return np.logical_not(present[column.offset : column.offset + len(column)])
