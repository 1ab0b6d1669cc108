"""Go the short way through steps that are all alike.

The observer's own handlers (`events.py`) allow for everything that a script may do. A loop that has done the same for a while,
one forward of one model, at most one known loss, one backward, one optimiser step on gradients that were set to None before, is
followed by the methods below instead. Each checks that what happens is what comes next, and keeps a number; the rows are made of
them many steps at a time. Anything else, and every step at which something is measured, goes the ordinary way: `leave` gives the
observer the state that its own handlers would have left. `tests/record/test_steady.py` holds one way against the other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
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

# What happened last within the step: no forward yet, and then one after the other; or the observer's own handlers are at work.
_AWAY = -1
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
        self.phase = _AWAY
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
        room = min(room, observer.rows_before_flush(track))
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
            return  # one of the observer's own handlers was dropped
        self.track, self.known, self.call, self.training = track, known, call, training
        self.model, self.sentinel = call.root.ref, track.resets.sentinel
        self.before_backward = _LOSS if calls else _FORWARD
        self.loss, self.mode = NAN, 1.0 if training else 0.0
        self.number, self.start = track.count, observer.began
        self.alarm, self.flush_at, self.opened = track.alarm, observer.flush_at, observer.gaps.opened
        self.capturing, observer.capture.wanted = observer.capture.wanted, False
        self.active, self.phase = True, _NOTHING

    # -- the step, called by the seams ---------------------------------------------------------------------------------

    def fits(self, module: Module) -> bool:
        """Tell whether this call of a module is the forward that comes next."""
        return self.phase == _NOTHING and self.model() is module and module.training is self.training and is_grad_enabled()

    def follow_forward(self, original: Callable[..., Any], module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call of the model, and follow it."""
        observer = self.observer
        try:
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
        except Exception as error:
            self._broke("follow_forward", error)
        observer.depth = 1
        try:
            result = original(module, *args, **kwargs)
        except BaseException:
            observer.depth = 0
            observer.forward_failed(self.call)
            raise
        observer.depth = 0
        if self.phase == _IN_FORWARD:
            self.forward = self.clock() - self.began
            self.phase = _FORWARD
        else:  # given back meanwhile
            observer.forward_ended(self.call, result)
        return result

    def take_loss(self, value: Any) -> bool:
        """Follow the loss; False where it is not what comes next."""
        if self.phase != _FORWARD or self.before_backward != _LOSS or type(value) is not Tensor:
            return False
        if not value.is_cpu or not value.requires_grad or value.shape:
            return False
        self.loss = value.item()
        self.phase = _LOSS
        return True

    def expects_backward(self, tensors: Any) -> bool:
        """Tell whether a backward comes next: its gradients were reset if there are none."""
        if self.phase != self.before_backward or type(tensors) is not Tensor or not tensors.is_cpu or tensors.shape:
            return False
        sentinel = self.sentinel()
        return sentinel is not None and sentinel.grad is None

    def follow_backward(self, original: Callable[..., Any], tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the backward call, and follow it."""
        observer = self.observer
        self.phase = _IN_BACKWARD
        began = self.backward_at = self.clock()
        observer.depth = 2
        try:
            original(tensors, *args, **kwargs)
        finally:
            observer.depth = 0
        now = self.clock()
        if self.phase == _IN_BACKWARD:
            self.backward = now - began
            self.wall = now
            self.value = tensors.item()
            self.phase = _BACKWARD
        else:  # given back meanwhile
            observer.backward_ended(tensors, args, kwargs)

    def expects_step(self, optimizer: Any) -> bool:
        """Follow the begin of the optimiser's step; False where it is not what comes next."""
        if self.phase != _BACKWARD or self.known.ref() is not optimizer:
            return False
        self.phase = _IN_STEP
        self.step_at = self.clock()
        return True

    def take_step(self, optimizer: Any) -> bool:
        """Keep the step; False where it is to be ended by the ordinary handler, as the last of a stretch is."""
        try:
            now = self.clock()
            if self.phase != _IN_STEP:
                return False
            rate = optimizer.param_groups[0].get("lr", NAN)
            clip = self.observer.clip
            usual = type(rate) is float and (clip is None or type(clip[0]) is float)
            if self.left <= 1 or now > self.flush_at or not self.value < self.alarm or not usual:
                self.leave(alike=usual)
                return False
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
            return True
        except Exception as error:
            self._broke("take_step", error)
            return True

    def _broke(self, name: str, error: Exception) -> None:
        """Never take the short way again; the step under way is lost."""
        self.usable, self.phase = False, _NOTHING
        self.leave()
        self.observer.recorder.note(f"broke: steady {name}: {type(error).__name__}: {error}")

    # -- giving back ---------------------------------------------------------------------------------------------------

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
        if not alike:
            self.alike = 0
        observer.capture.wanted = self.capturing
        if self.capturing:
            observer.capture.backwards += done + (self.phase >= _IN_BACKWARD)
        if done:
            self._end_steps(done)
        if self.phase > _NOTHING:
            self._begin_step(observer, track)
        self.phase, self.loader, self.gap_cpu = _AWAY, 0.0, NAN

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
