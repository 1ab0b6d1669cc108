"""Say why a training run fails. The names below are loaded when they are first used: importing this is quick."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lossdoctor.reading import read
    from lossdoctor.routine import can_memorize, checkup
    from lossdoctor.shown import Report
    from lossdoctor.watching import Doctor, watch

_HOME = {
    "Doctor": "watching",
    "Report": "shown",
    "can_memorize": "routine",
    "checkup": "routine",
    "read": "reading",
    "watch": "watching",
}

__all__ = ["Doctor", "Report", "__version__", "can_memorize", "checkup", "read", "watch"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
