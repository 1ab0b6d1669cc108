"""Refuse a process its writes, subprocesses and connections at the Python level, where namespaces are not allowed.

What a compiled extension opens by itself is not seen; torch's own writers are guarded by name. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path


class NotIsolated(PermissionError):
    """Refuse what a guarded process may not do; the message names the path or address."""


first_refusal = ""  # what the script tried first, also where it caught the error


def _refusal(what: str) -> NotIsolated:
    global first_refusal
    first_refusal = first_refusal or what
    return NotIsolated(what)


def guard(keep: Path) -> None:
    """Make Python-level writes, subprocesses and connections outside a folder raise `NotIsolated` from now on.

    It cannot be undone in this process (audit hooks stay). What a compiled extension opens by itself is not seen; torch's
    own writers are guarded where they are imported, by `guard_torch`.

    Args:
        keep: folder that may be written.
    """
    allowed = (str(keep.resolve()) + "/", "/dev/null", "/dev/shm/", "/dev/tty")

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        rule = _RULES.get(event)
        for path in rule(arguments) if rule else ():
            name = os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes)) else ""
            if not f"{name}/".startswith(allowed) and name not in allowed:
                raise _refusal(f"{event}: {path!r}")

    import tempfile

    tempfile.tempdir = str(keep.resolve())  # multiprocessing and scripts take their temporary folders from here
    sys.addaudithook(audit)


def guard_torch(keep: Path) -> None:
    """Refuse `torch.save` and `torch.jit.save` to paths outside a folder: they write without Python's `open`."""
    import torch

    for module in (torch, torch.jit):
        module.save = _guarded_save(module.save, str(keep.resolve()) + "/")  # type: ignore[attr-defined]


def _guarded_save(save: Callable[..., object], allowed: str) -> Callable[..., object]:
    def guarded(value: object, file: object, *arguments: object, **named: object) -> object:
        if isinstance(file, (str, os.PathLike)) and not os.path.realpath(file).startswith(allowed):
            raise _refusal(f"save: {os.fspath(file)!r}")
        return save(value, file, *arguments, **named)

    return guarded


def _opened(arguments: tuple[object, ...]) -> tuple[object, ...]:
    path, mode, flags = (*arguments, None, None, None)[:3]
    writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
        isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    )
    return (path,) if writes and not isinstance(path, int) else ()


def _first(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return arguments[:1]


def _first_two(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return arguments[:2]


def _address(arguments: tuple[object, ...]) -> tuple[object, ...]:
    address = arguments[-1] if arguments else ""
    return (address,) if isinstance(address, (str, bytes)) else _refuse((address,))  # a path is a socket of this machine


def _refuse(arguments: tuple[object, ...]) -> tuple[object, ...]:
    return (f"<{arguments[0] if arguments else ''}>",)


# Audit events (docs.python.org, "Audit events table") to the paths that they would change.
_RULES: dict[str, Callable[[tuple[object, ...]], tuple[object, ...]]] = {
    "open": _opened,
    "sqlite3.connect": _first,
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.rmtree"), _first),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink", "shutil.move", "shutil.copyfile"), _first_two),
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.bind"), _address),
    **dict.fromkeys(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.kill"), _refuse),
}
