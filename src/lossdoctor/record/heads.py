"""Write what a track is: its parameters with names, its optimiser, its model, where its lines stand in the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lossdoctor.record.facts import settings
from lossdoctor.record.freezes import flagged
from lossdoctor.record.parameters import Keys, describe
from lossdoctor.record.tracks import Track
from lossdoctor.record.window import Window

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer


class Heads:
    """Write the heads of the tracks of one process.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.written = 0
        self._keys = Keys()

    def know(self, track: Track, optimizer: Any, windows: list[Window]) -> None:
        """Find out a track's model and the names of its parameters."""
        track.choose_root([forward for window in windows for forward in window.forwards])
        parameters = track.alive()
        named = list(zip(parameters, _fallback_names(optimizer, len(parameters)), strict=True))
        roots = [root for root in track.models if track.identities & root.names.keys()]
        roots += [root for root in self.observer.roots.known.values() if root not in roots]
        track.described = list(describe(named, roots, self._keys))
        modules = [module for root in roots if (module := root.ref()) is not None]
        track.flagged = flagged(modules, parameters, track.names)

    def write(self, track: Track, optimizer: Any) -> None:
        """Write a track's head, and the lines that waited for it."""
        observer, recorder = self.observer, self.observer.recorder
        head = {"kind": "track", "track": track.number, "what": track.what, "began": track.began, "parameters": track.described}
        recorder.add(head)
        if optimizer is not None:
            observer.fact(track, "optimizer", settings(optimizer))
        observer.fact(track, "where", dict(observer.places))
        observer.fact(track, "frozen_modules", track.flagged)
        observer.looking = False
        track.headed = True
        self.written += 1
        for line in track.lines:
            recorder.add(line)
        track.lines.clear()
        observer.samples.track_began(track)
        if observer.loaders.fact:
            observer.fact(track, "loader", observer.loaders.fact)


def _fallback_names(optimizer: Any, count: int) -> list[str]:
    if optimizer is None:
        return [f"parameter{index}" for index in range(count)]
    groups = enumerate(optimizer.param_groups)
    return [f"group{number}.{index}" for number, group in groups for index in range(len(group["params"]))][:count]
