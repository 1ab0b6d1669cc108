"""CRC-32C of many byte strings of one length at once (Castagnoli's polynomial, as TFRecord files carry it)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
_POLYNOMIAL = 0x82F63B78  # reflected, RFC 3720
_MASK_DELTA = 0xA282EAD8  # TFRecord adds it so that a CRC of data that holds CRCs stays sound


@cache
def table() -> Words:
    """Return the 256 remainders of one byte."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(_POLYNOMIAL), values >> 1).astype(np.uint32)
    return values


def crc32c(rows: Bytes) -> Words:
    """Return the CRC of each row.

    Args:
        rows: shape (n, length).

    Example:
        >>> hex(int(crc32c(np.frombuffer(b"123456789", dtype=np.uint8)[None])[0]))
        '0xe3069283'
    """
    remainders = table()
    crc = np.full(len(rows), 0xFFFFFFFF, dtype=np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = remainders[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return np.asarray(crc ^ np.uint32(0xFFFFFFFF), dtype=np.uint32)


def masked(crc: Words) -> Words:
    """Return the CRC as TFRecord files hold it."""
    return np.asarray(((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA), dtype=np.uint32)
