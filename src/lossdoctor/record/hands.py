"""Follow loops that step by hand, or forget to step: each backward is a step, as long as no optimiser takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lossdoctor.record.places import user_place
from lossdoctor.record.values import NAN
from lossdoctor.record.window import Window

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer
    from lossdoctor.record.parameters import Root
    from lossdoctor.record.tracks import Track

PENDING = 256  # backward calls without a step after which they count as steps by hand
_WAIT_SECONDS = 0.5  # before the first of them is written: an optimiser may still step


class Hands:
    """Keep the tracks of backward calls that no optimiser takes.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.active = True  # until an optimiser steps
        self._tracks: dict[tuple[Any, ...], Track] = {}
        self._track: Track | None = None
        self._not_reset = NAN

    def backward_began(self, tensors: Any, window: Window) -> None:
        """Know which parameters a backward reaches; they may have moved since the last."""
        roots = list(dict.fromkeys(forward[0] for forward in window.forwards))
        key = tuple(id(root) for root in roots) or (user_place(),)
        track = self._tracks.get(key)
        if track is None or track.count < 3 or not track.alive():
            found = self.observer.samples.reached(tensors, roots)
            if track is None or {id(parameter) for parameter in found} != track.identities:
                track = self._tracks[key] = self.observer.new_track("manual", found)
        self._track = track
        self._not_reset = NAN
        if track.count:
            self._not_reset = 0.0 if track.resets.look() else 1.0
            if track.plan:
                self.observer.samples.step_ended(track, track.count - 1, track.alive())

    def backward_ended(self, window: Window) -> None:
        """Make the backward a step: the gradients are there, and the parameters have not moved yet."""
        if self._track is not None:
            self._add(self._track, window)

    def _add(self, track: Track, window: Window) -> None:
        observer = self.observer
        if track.count == 0:
            track.began = window.wall
            observer.heads.know(track, None, [window])
        if track.count >= track.schedule.earliest:
            observer.samples.step_before(track, track.count, track.alive())
        track.resets.keep(track)
        no_gradient = observer.no_gradient(track)
        observer.add_row(track, [window], (NAN, self._not_reset, no_gradient, observer.take_clip(), window.wall, 0.0))

    def leave(self) -> None:
        """Forget what no optimiser had stepped on: one does now."""
        self.active, self._track = False, None
        given_up = [track for track in self._tracks.values() if not track.headed]
        self.observer.tracks = [track for track in self.observer.tracks if track not in given_up]
        self._tracks = {}

    def take_over(self, pending: list[Window], usual: int, last: bool) -> None:
        """Take backward calls that pile up without a step for steps by hand.

        Args:
            pending: the backward calls since the last step; cut to what one step may still take.
            usual: how many backward calls a step has taken at most.
            last: the record ends here.
        """
        if len(pending) <= (usual if last else max(PENDING, 4 * usual)):
            return
        self.active = True
        roots: list[Root] = list(dict.fromkeys(forward[0] for window in pending[-8:] for forward in window.forwards))
        if last and roots:  # no further backward will come from which to learn what it reaches
            track = self.observer.new_track("manual", self.observer.samples.reached(None, roots))
            self._tracks[tuple(id(root) for root in roots)] = track
            for window in pending:
                self._add(track, window)
        del pending[: -max(1, usual)]

    def write_heads(self, elapsed: float, last: bool) -> None:
        """Write what the tracks are, once they are steps by hand for certain, and not an accumulation that goes on."""
        tracks = [track for track in self._tracks.values() if track.count]
        if not tracks:
            return
        waited = elapsed - min(track.began for track in tracks) > _WAIT_SECONDS and max(track.count for track in tracks) > 1
        if last or waited or any(track.headed for track in tracks):
            for track in tracks:
                if not track.headed:
                    self.observer.heads.write(track, None)
                    self.observer.fact(track, "optimizers_idle", self.observer.optimizers.idle(track.identities))
