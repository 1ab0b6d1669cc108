"""Find the line of the user's source that stands behind a call."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS})


def user_place() -> tuple[str, int] | None:
    """Return file and line of the innermost frame that is neither torch's, ours, nor any installed package's."""
    frame = user_frame(sys._getframe(1))
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's source, from a frame outwards."""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *_LIBRARIES)) and "site-packages" not in name and "dist-packages" not in name:
            return frame
        if name.startswith(("<ipython", "<stdin")):
            return frame
        frame = frame.f_back
    return None
