"""Take our own frames out of a traceback, so that the user sees the one that python would have printed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Only these stand between the script and python; a recipe of the bench is a user's script.
OURS = (os.path.join(_PACKAGE, "launch", ""), os.path.join(_PACKAGE, "record", ""))


def hide_our_frames(error: BaseException) -> None:
    """Drop the frames of the launcher and the seams from an exception and from all that it is chained to."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = without_our_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without our frames; its other entries are kept as they are."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(OURS):
            kept.append(trace)
        trace = trace.tb_next
    for entry, following in zip(kept, [*kept[1:], None], strict=False):
        entry.tb_next = following
    return kept[0] if kept else None
