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
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", *_LIBRARIES)) and "site-packages" not in name and "dist-packages" not in name:
            return name, frame.f_lineno
        if name.startswith(("<ipython", "<stdin")):
            return name, frame.f_lineno
        frame = frame.f_back
    return None
