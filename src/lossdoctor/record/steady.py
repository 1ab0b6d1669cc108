"""Go the short way through steps that are all alike.

The observer's own handlers (`events.py`) allow for everything that a script may do. A loop that has done the same for a while,
one forward of one model, at most one known loss, one backward, one optimiser step on gradients that were set to None before, is
followed by the handlers below instead. Each checks that what happens is what comes next, and keeps a number; the rows are made of
them many steps at a time. Anything else, and every step at which something is measured, goes the ordinary way: `leave` gives the
observer the state that its own handlers would have left. `tests/record/test_steady.py` holds one way against the other.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor, is_grad_enabled

from lossdoctor.record.values import NAN
from lossdoctor.record.window import Call, Window, rows_of

if TYPE_CHECKING:
    from torch.nn import Module

    from lossdoctor.record.events import Observer
    from lossdoctor.record.optimizers import Known
    from lossdoctor.record.tracks import Track

_ALIKE = 8  # equal steps before the short way is taken
_MOST = 256  # steps on it before an ordinary one: what only that one notices is late by so many at most
_HANDLERS = ("forward_began", "forward_ended", "loss_called", "backward_began", "backward_ended", "step_began", "step_ended")

# What happened last within the step: no forward yet, and then one after the other.
_NOTHING, _IN_FORWARD, _FORWARD, _LOSS, _IN_BACKWARD, _BACKWARD, _IN_STEP = range(7)


class Steady:
    """Follow one training while its steps are alike.

    Args:
        observer: whose handlers it takes the place of.
    """

    __slots__ = (
        "active",
        "alarm",
        "alike",
        "backward",
        "backward_at",
        "before_backward",
        "began",
        "call",
        "capturing",
        "clock",
        "flush_at",
        "forward",
        "gap_cpu",
        "gaps",
        "known",
        "left",
        "loader",
        "loaders",
        "loss",
        "mode",
        "model",
        "number",
        "observer",
        "opened",
        "phase",
        "queued",
        "rows",
        "sentinel",
        "shape",
        "start",
        "step_at",
        "steps",
        "track",
        "training",
        "usable",
        "value",
        "wall",
    )

    call: Call
    known: Known
    model: weakref.ref[Module]
    sentinel: weakref.ref[Tensor]
    track: Track

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.clock = observer.clock
        self.loaders = observer.loaders
        self.gaps = observer.gaps
        self.active, self.usable = False, True
        self.alike = 0
        self.shape: tuple[Any, ...] = ()
        self.phase = _NOTHING
        self.steps: list[tuple[float, ...]] = []  # rows of `tracks.COLUMNS`
        self.left = self.number = 0
        self.training = self.capturing = False
        self.before_backward = _LOSS
        self.opened = self.began = self.forward = self.loader = self.backward_at = self.backward = self.wall = self.step_at = 0.0
        self.loss = self.value = self.rows = self.mode = self.gap_cpu = self.queued = NAN
        self.alarm = self.flush_at = self.start = 0.0

    # -- taking over -------------------------------------------------------------------------------------------------

    def offer(self, track: Track, known: Known, window: Window) -> None:
        """Take over after an ordinary step, where it and the ones before it were alike."""
        if len(window.forwards) != 1 or len(window.calls) > 1 or window.mixed or type(window.value) is not float:
            self.alike = 0
            return
        root, training, _ = window.forwards[0]
        shape = (track, known, root, training, len(window.calls))
        self.alike = self.alike + 1 if shape == self.shape else 0
        self.shape = shape
        if self.alike >= _ALIKE and self.usable:
            self.left = self._room(track)
            if self.left > 1 and self._clear(track):
                self._take_over(track, known, root.call, training, len(window.calls))

    def _room(self, track: Track) -> int:
        """Return how many steps there are before something is measured; the last of them is an ordinary one."""
        observer = self.observer
        samples, capture = observer.samples, observer.capture
        room = min(_MOST, track.schedule.earliest - track.count, samples.schedule.earliest - samples.tick)
        if observer.max_steps is not None:
            room = min(room, observer.max_steps - track.count)
        return min(room, capture.quiet) if capture.wanted else room

    def _clear(self, track: Track) -> bool:
        """Tell whether nothing is going on but this training."""
        observer = self.observer
        busy = observer.off or observer.depth or observer.looking or observer.hands.active or observer.one_step_takes_several
        other = busy or observer.passes.open is not None or observer.samples.plan or observer.sees_scaled
        return not other and track.resets.to_none and track.no_gradient == 0.0 and observer.waits_for(track)

    def _take_over(self, track: Track, known: Known, call: Call, training: bool, calls: int) -> None:
        observer = self.observer
        if track.resets.sentinel is None or not vars(observer).keys().isdisjoint(_HANDLERS):
            return  # one of the handlers was dropped
        self.track, self.known, self.call, self.training = track, known, call, training
        self.model, self.sentinel = call.root.ref, track.resets.sentinel
        self.before_backward = _LOSS if calls else _FORWARD
        self.loss, self.mode = NAN, 1.0 if training else 0.0
        self.number, self.start = track.count, observer.began
        self.alarm, self.flush_at, self.opened = track.alarm, observer.flush_at, observer.gaps.opened
        self.capturing, observer.capture.wanted = observer.capture.wanted, False
        self.active = True
        vars(observer).update((name, getattr(self, name)) for name in _HANDLERS)

    # -- the step ------------------------------------------------------------------------------------------------------

    def forward_began(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Follow the forward."""
        try:
            if self.phase or self.model() is not module or module.training is not self.training or not is_grad_enabled():
                return self._other_way().forward_began(module, args, kwargs)
            self.began = self.clock()
            if self.gaps.measuring:
                self.gaps.stop(self)
            first = args[0] if args else None
            if type(first) is Tensor:
                shape = first.shape
                self.rows = shape[0] if shape else 1
            else:
                self.rows = rows_of(args, kwargs)
            if self.loaders.seconds:
                self.loader, self.loaders.seconds = self.loaders.seconds, 0.0
            self.phase = _IN_FORWARD
            return self.call
        except Exception as error:
            self._broke("forward_began", error)
            return None

    def forward_ended(self, call: Call, result: Any) -> None:
        """Follow the end of the forward."""
        try:
            if self.phase != _IN_FORWARD:
                self._other_way().forward_ended(call, result)
                return
            self.forward = self.clock() - self.began
            self.phase = _FORWARD
        except Exception as error:
            self._broke("forward_ended", error)

    def loss_called(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        """Follow the loss."""
        try:
            plain = type(value) is Tensor and value.is_cpu and value.requires_grad and not value.dim()
            if self.phase != _FORWARD or self.before_backward != _LOSS or not plain:
                self._other_way().loss_called(kind, args, kwargs, value)
                return
            self.loss = value.item()
            self.phase = _LOSS
        except Exception as error:
            self._broke("loss_called", error)

    def backward_began(self, tensors: Any) -> None:
        """Follow the backward: its gradients were reset if there are none."""
        try:
            sentinel = self.sentinel()
            if self.phase != self.before_backward or sentinel is None or sentinel.grad is not None:
                capture = self.observer.capture
                capture.backwards += self.capturing  # the seam has passed it by
                self._other_way().backward_began(tensors)
                return
            self.phase = _IN_BACKWARD
            self.backward_at = self.clock()
        except Exception as error:
            self._broke("backward_began", error)

    def backward_ended(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Follow the end of the backward."""
        try:
            now = self.clock()
            if self.phase != _IN_BACKWARD or type(tensors) is not Tensor or tensors.dim() or not tensors.is_cpu:
                self._other_way().backward_ended(tensors, args, kwargs)
                return
            self.backward = now - self.backward_at
            self.wall = now
            self.value = tensors.item()
            self.phase = _BACKWARD
        except Exception as error:
            self._broke("backward_ended", error)

    def step_began(self, optimizer: Any, closure: bool) -> None:
        """Follow the optimiser's step."""
        try:
            if self.phase != _BACKWARD or closure or self.known.ref() is not optimizer:
                self._other_way().step_began(optimizer, closure)
                return
            self.phase = _IN_STEP
            self.step_at = self.clock()
        except Exception as error:
            self._broke("step_began", error)

    def step_ended(self, optimizer: Any) -> None:
        """Keep the step; the last of a stretch is ended by the ordinary handler."""
        try:
            now = self.clock()
            rate = optimizer.param_groups[0].get("lr", NAN)
            clip = self.observer.clip
            usual = self.phase == _IN_STEP and type(rate) is float and (clip is None or type(clip[0]) is float)
            if self.left <= 1 or now > self.flush_at or not self.value < self.alarm or not usual:
                self.leave(alike=usual)
                self.observer.step_ended(optimizer)
                return
            norm, limit = clip or (NAN, NAN)
            gap = self.began - self.opened
            idle = max(0.0, gap - self.gap_cpu - self.queued) if self.gap_cpu == self.gap_cpu else NAN
            row = (self.number, self.value, 1.0, self.loss, rate, 0.0, 0.0, norm, limit, self.mode, self.rows, now - self.start)
            self.steps.append((*row, self.forward, self.backward, now - self.step_at, self.loader, gap, idle, self.gap_cpu))
            if clip is not None:
                self.observer.clip = None
            self.number += 1
            self.left -= 1
            self.loader, self.gap_cpu = 0.0, NAN
            self.phase = _NOTHING
            gaps = self.gaps
            gaps.left -= 1
            gaps.opened = self.clock()
            if gaps.left < 0:
                gaps.start()
            self.opened = gaps.opened
        except Exception as error:
            self._broke("step_ended", error)

    def _broke(self, name: str, error: Exception) -> None:
        """Never take the short way again; the step under way is lost."""
        self.usable, self.phase = False, _NOTHING
        self.leave()
        self.observer.recorder.note(f"broke: steady {name}: {type(error).__name__}: {error}")

    # -- giving back ---------------------------------------------------------------------------------------------------

    def _other_way(self) -> Observer:
        self.leave(alike=False)
        return self.observer

    def leave(self, alike: bool = False) -> None:
        """Give back to the observer, also within a step.

        Args:
            alike: the steps are still alike; the short way may be taken again after one ordinary step.
        """
        if not self.active:
            return
        observer, track = self.observer, self.track
        done = self.number - track.count
        self.active = False
        for name in _HANDLERS:
            vars(observer).pop(name, None)
        if not alike:
            self.alike = 0
        observer.capture.wanted = self.capturing
        if self.capturing:
            observer.capture.backwards += done + (self.phase >= _IN_BACKWARD)
        if done:
            self._end_steps(done)
        if self.phase:
            self._begin_step(observer, track)
        self.phase, self.loader, self.gap_cpu = _NOTHING, 0.0, NAN

    def _end_steps(self, done: int) -> None:
        observer, track = self.observer, self.track
        steps, self.steps = self.steps, []
        track.add_rows(steps)
        track.stepped = self.backward_at
        observer.budget.steps += done
        observer.samples.tick += done

    def _begin_step(self, observer: Observer, track: Track) -> None:
        """Do what the observer's own handlers would have done since the last step."""
        window, call, gaps, phase = observer.window, self.call, observer.gaps, self.phase
        window.opened, gaps.opened, window.began = gaps.opened, 0.0, self.began
        window.loader_seconds, window.gap_cpu, window.queued = self.loader, self.gap_cpu, self.queued
        observer.samples.begun = True
        call.began, call.rows = self.began, self.rows
        if phase >= _FORWARD:
            window.forward_seconds = self.forward
            window.forwards.append((call.root, self.training, self.rows))
        if phase >= _LOSS and self.before_backward == _LOSS:
            window.calls.append((1, self.loss))
        if phase >= _IN_BACKWARD:
            track.resets.asked = track.resets.seen = True
            observer.enter_backward(self.backward_at)
        if phase >= _BACKWARD:
            window.wall, window.backward_seconds, window.value = self.wall - observer.began, self.backward, self.value
            observer.take_backward(window)
        if phase >= _IN_STEP:
            observer.enter_step(self.known, track, self.step_at)
