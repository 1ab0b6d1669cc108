"""Arm a process: the seams are put in place as soon as the script has imported torch, never before."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from lossdoctor.record.recorder import Recorder

_armed: weakref.WeakSet[Recorder] = weakref.WeakSet()
_registered = False


def arm(
    out: Path,
    *,
    script: str,
    budget: float = 0.01,
    max_steps: int | None = None,
    private: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Recorder:
    """Record every training of this process.

    Args:
        out: folder of all runs; the run's own folder is made in it with the first step.
        script: the script as the user typed it.
        budget: share of the CPU time that costly probes may take.
        max_steps: the recording (not the script) ends after so many steps of one optimiser.
        private: what a repetition needs; goes to `private.json`, mode 0600.
        facts: what else holds for the whole run; goes to `run.json`.

    Example:
        >>> import tempfile
        >>> recorder = arm(Path(tempfile.gettempdir()) / "runs", script="train.py")
        >>> recorder.stop()
        >>> recorder.folder is None
        True
    """
    recorder = Recorder(Path(out), script, budget, max_steps, private, facts)
    _armed.add(recorder)
    _register()
    if "torch" in sys.modules and _complete(sys.modules["torch"]):
        recorder.install()
    else:
        sys.meta_path.insert(0, _Finder(recorder))
    return recorder


def _complete(torch: ModuleType) -> bool:
    return not getattr(torch.__spec__, "_initializing", False)


def _register() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_stop_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disarm_child)


def _stop_all() -> None:
    for recorder in list(_armed):
        recorder.stop()


def _disarm_child() -> None:
    for recorder in list(_armed):
        recorder.disarm_child()


class _Finder:  # by its methods alone: `importlib.abc` would add 36 ms to the start
    """Wait for the import of torch; find nothing oneself."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self.recorder)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Run torch's own loader, then install the seams; torch is left with its own loader."""

    def __init__(self, loader: Any, recorder: Recorder) -> None:
        self.loader = loader
        self.recorder = recorder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self.loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.recorder.install()
