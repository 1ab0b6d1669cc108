"""Turn what the seams see into steps of tracks. The light part: every call here is made at every step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, is_grad_enabled

from lossdoctor.record.capture import Capture
from lossdoctor.record.gaps import Gaps
from lossdoctor.record.hands import PENDING, Hands
from lossdoctor.record.heads import Heads
from lossdoctor.record.loaders import Loaders
from lossdoctor.record.optimizers import Known, Optimizers, parameters_of
from lossdoctor.record.parameters import Roots
from lossdoctor.record.places import user_place
from lossdoctor.record.resets import has_gradient
from lossdoctor.record.samples import Samples
from lossdoctor.record.schedule import Budget, Schedule
from lossdoctor.record.schedules import Schedules
from lossdoctor.record.steady import Steady
from lossdoctor.record.tracks import STEP_PROBES, Track
from lossdoctor.record.validation import Passes
from lossdoctor.record.values import NAN, backward_value, value_of
from lossdoctor.record.window import Call, Window, rows_of

if TYPE_CHECKING:
    from lossdoctor.record.recorder import Recorder

FLUSH_SECONDS = 0.5  # what a kill may lose
FLUSH_ROWS = 4096
_MOST_FORWARDS = 4096  # forwards remembered before one backward
_STEADY = 4  # backward calls after equally many forwards, before more forwards than those count as a look at other data


class Observer:
    """Watch one process's training.

    Args:
        recorder: takes lines and notes.
        budget: share of the CPU time that costly probes may take.
        max_steps: the recording ends after so many steps of one track.
    """

    def __init__(self, recorder: Recorder, budget: float, max_steps: int | None = None) -> None:
        self.recorder = recorder
        self.clock: Callable[[], float] = perf_counter
        self.off = False
        self.depth = 0  # 0 outside, 1 inside a model's forward, 2 inside backward
        self.in_loss = False
        self.drawn = False  # dropout drawn or batch statistics used since last asked
        self.max_steps = max_steps
        self.budget = Budget(budget)
        self.roots = Roots()
        self._roots = self.roots.known
        self.tracks: list[Track] = []
        self.made = 0  # tracks so far, those that were given up included
        self.heads = Heads(self)
        self.samples = Samples(self)
        self.capture = Capture()
        self.passes = Passes(self)
        self.hands = Hands(self)
        self.gaps = Gaps(self.clock)
        self.window = Window()
        self.began = self.clock()
        self.optimizers = Optimizers()
        self.resetting: set[int] = set()  # optimisers whose own `zero_grad` was called
        self.watch_zero_grad: Callable[[bool], None] = lambda on: None  # on as long as there are others
        self._schedulers: list[str] = []
        self.schedules = Schedules()
        self._waiting: list[Track] = []  # tracks whose gradients were not reset since their last step
        self._pending: list[Window] = []  # backward calls that no optimiser has taken
        self._last: list[Window] = []
        self._longest = 1
        self._usual, self._steady = 0, 0  # forwards before each of the last backward calls, and for how many it was so
        self.flush_at = 0.0
        self.places: dict[str, tuple[str, int]] = {}
        self.looking = True
        self.loaders = Loaders(self)
        self.clip: tuple[Any, float] | None = None
        self._stepping: tuple[int, Track] = (0, None)  # type: ignore[assignment]
        self._scaled: tuple[weakref.ref[Tensor], Any] | None = None
        self._step_began = self._backward_began = self._inside_step = 0.0
        self.steady = Steady(self)

    # -- the model's forward ---------------------------------------------------------------------------------------

    def forward_began(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Note that a module is called from outside any other; None where it holds no parameters."""
        try:
            self.steady.leave()
            root = self._roots.get(id(module))
            if root is None or root.ref() is not module:
                root = self.roots.of(module)
            if not root.elements:
                return None
            call = root.call
            call.began = now = self.clock()
            call.training = training = module.training
            call.grad = grad = is_grad_enabled()
            first = args[0] if args else None
            call.rows = first.size(0) if type(first) is Tensor and first.dim() else rows_of(args, kwargs)
            if not grad or not root.trainable or not (training or root.trained_in_eval_mode or not root.trained_in_train_mode):
                self._other_forward_began(call, module, args, kwargs)
                return call
            call.kind = "training"
            window = self.window
            if not window.forwards:
                self._first_forward(window, now)
            loaders = self.loaders
            if loaders.seconds:
                window.loader_seconds += loaders.seconds
                loaders.seconds = 0.0
            if self.looking:
                self._see("forward")
            if self.samples.plan:
                self.samples.forward_began(call, module, args, kwargs)
            return call
        except Exception as error:
            self.broke("forward_began", error)
            return None

    def _first_forward(self, window: Window, now: float) -> None:
        """End the gap before a backward's first forward, and plan what is measured from here on."""
        passes, gaps, samples = self.passes, self.gaps, self.samples
        if passes.open is not None:
            passes.close(now)
        if passes.seconds:
            window.excluded = passes.take_seconds()
        window.opened, gaps.opened, window.began = gaps.opened, 0.0, now
        if gaps.measuring:
            gaps.stop(window)
        samples.begun = True
        if samples.tick >= samples.schedule.earliest:
            samples.begin()

    def _other_forward_began(self, call: Call, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell a forward of a validation pass from one of a model that nobody trains."""
        looks = not call.grad or not call.training
        call.kind = "validation" if looks and self.passes.own(call.root) else "foreign"
        if call.kind == "validation":
            self.passes.forward_began(call, module, args, kwargs)

    def forward_ended(self, call: Call, result: Any) -> None:
        """Note that the outermost call of a model returned."""
        try:
            if call.kind != "training":
                if call.kind == "validation":
                    self.passes.forward_ended(call, result)
                return
            if self.samples.plan:
                self.samples.forward_ended(call, result)
            window = self.window
            window.forward_seconds += self.clock() - call.began
            forwards = window.forwards
            if len(forwards) < _MOST_FORWARDS:
                if forwards and forwards[-1][1] != call.training:
                    window.mixed = True
                forwards.append((call.root, call.training, call.rows))
        except Exception as error:
            self.broke("forward_ended", error)

    def forward_failed(self, call: Call) -> None:
        """Note that a model raised."""
        try:
            self.steady.leave()
            self.samples.forward_ended(call)
        except Exception as error:
            self.broke("forward_failed", error)

    # -- losses ------------------------------------------------------------------------------------------------------

    def loss_called(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        """Note the value of a known loss function."""
        try:
            self.steady.leave()
            if not value.requires_grad or self.passes.open is not None:
                self.passes.loss_called(kind, args, kwargs, value)
                return  # where the pass turns out to be training, its losses are taken over
            window = self.window
            plain = type(value) is Tensor and value.is_cpu and not value.dim()
            window.calls.append((len(window.forwards), value.item() if plain else value_of(value)))
            if self.looking:
                self._see("loss")
            if self.samples.plan or not self.samples.begun:
                self.samples.loss_called(kind, args, kwargs, value)
        except Exception as error:
            self.broke("loss_called", error)

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """Note what a gradient scaler multiplied: the loss is what it was before."""
        self.steady.leave()
        if isinstance(result, Tensor):
            self._scaled = (weakref.ref(result), outputs)

    # -- backward ----------------------------------------------------------------------------------------------------

    def backward_began(self, tensors: Any) -> None:
        """Note the entry of an outermost backward."""
        try:
            self.steady.leave()
            for track in self._waiting:
                if track.resets.look():
                    self._waiting = [each for each in self._waiting if each is not track]
            window = self.window
            if self.passes.open is not None and not self.passes.was_training(window, self._usual):
                self.passes.close(self.clock())
            if window.mixed or len(window.forwards) != self._usual:
                self._split_off_validation(window)
            else:
                self._steady += 1
            if self.hands.active:
                self.hands.backward_began(tensors, window)
            if self.looking:
                self._see("backward")
            if self.samples.plan or not self.samples.begun:
                self.samples.backward_began(tensors)
        except Exception as error:
            self.broke("backward_began", error)
        self._backward_began = self.clock()

    def backward_ended(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the end of an outermost backward: what it was called on, and what led to it."""
        try:
            now = self.clock()
            window, self.window = self.window, Window()
            window.wall = now - self.began
            window.backward_seconds = seconds = now - self._backward_began
            self._inside_step += window.forward_seconds + seconds
            plain = type(tensors) is Tensor and tensors.is_cpu and not tensors.dim() and self._scaled is None
            window.value = tensors.item() if plain else backward_value(tensors, args, kwargs, self._scaled)
            self._scaled = None
            for track in self._waiting:
                track.resets.follow()
            if window.forwards:
                root, training, _ = window.forwards[-1]
                if training:
                    root.trained_in_train_mode = True
                else:
                    root.trained_in_eval_mode = True
            elif self._pending:
                window.follows = not self.hands.active
            samples = self.samples
            samples.tick += 1
            samples.begun = False
            if samples.plan:
                window.samples = samples.backward_ended(window.value)
            self._pending.append(window)
            if self.hands.active or self._longest > 1:
                self._not_the_step(window, now)
        except Exception as error:
            self.broke("backward_ended", error)

    def _not_the_step(self, window: Window, now: float) -> None:
        """Go on after a backward that no step may follow at once."""
        if self.hands.active:
            self.hands.backward_ended(window)
            del self._pending[:-PENDING]
        self._open_gap(now)
        if now > self.flush_at:
            self.flush(now)

    def _open_gap(self, now: float) -> None:
        gaps = self.gaps
        gaps.opened, gaps.measuring = now, False
        gaps.left -= 1
        if gaps.left < 0:
            gaps.start()

    def _split_off_validation(self, window: Window) -> None:
        """Find the forwards that were a look at other data without `no_grad`: in another mode, or more than there always are."""
        count = len(window.forwards)
        start = window.last_of_one_mode() if window.mixed else 0
        if not start and self._steady >= _STEADY and count > self._usual > 0:
            start = count - self._usual
        if start:
            forwards, calls = window.split(start)
            self.passes.surplus(forwards, calls, self.clock())
        if count - start != self._usual:
            self._usual, self._steady = count - start, 0

    # -- the optimiser's step ----------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: Any) -> None:
        """Note that an optimiser exists."""
        try:
            self.steady.leave()
            self.optimizers.of(optimizer)
            self.resetting.discard(id(optimizer))
            self.watch_zero_grad(True)
            if not self.looking:
                self.looking, self.places = True, {}
                self.samples.training_began()
            self.roots.refresh()
        except Exception as error:
            self.broke("optimizer_made", error)

    def scheduler_made(self, scheduler: Any) -> None:
        """Note that a learning-rate scheduler exists."""
        try:
            name = type(scheduler).__name__
            if name not in self._schedulers:
                self._schedulers.append(name)
                self.fact(None, "schedulers", list(self._schedulers))
            self.schedules.made(scheduler, self.optimizers.of(scheduler.optimizer))
        except Exception as error:
            self.broke("scheduler_made", error)

    def scheduler_stepped(self, scheduler: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Count a scheduler's steps."""
        try:
            self.schedules.stepped(scheduler, given, named)
        except Exception as error:
            self.broke("scheduler_stepped", error)

    def zero_grad_called(self, optimizer: Any) -> None:
        """Note that an optimiser's own `zero_grad` was called."""
        if not self.off:
            self.resetting.add(id(optimizer))
            self.optimizers.of(optimizer).reset = True
            if self.optimizers.all_reset():
                self.watch_zero_grad(False)

    def step_began(self, optimizer: Any, closure: bool) -> None:
        """Note the start of an optimiser's step."""
        try:
            self.steady.leave()
            if self.depth == 2:  # a step within backward, one per parameter: the backward is the step
                self.optimizers.of(optimizer).steps_inside = True
                return
            self._step_began = self.clock()
            self._inside_step = 0.0
            if self.passes.open is not None:
                self.passes.leave()
            track = self._track_of(optimizer)
            self._stepping = (id(optimizer), track)
            if not closure and track.count >= track.schedule.earliest:
                self.step_before(optimizer)
        except Exception as error:
            self.broke("step_began", error)

    def step_before(self, optimizer: Any) -> None:
        """Measure right before the parameters move: at the start of the step, or at the end of its closure."""
        try:
            track = self._track_of(optimizer)
            if track.count >= track.schedule.earliest:
                if track.count == 0:
                    self._first_step(track, optimizer, self._pending or self._last)
                self.samples.step_before(track, track.count, track.alive())
        except Exception as error:
            self.broke("step_before", error)

    def step_ended(self, optimizer: Any) -> None:
        """Note the end of an optimiser's step and make it a row of its track."""
        try:
            self.steady.leave()
            now = self.clock()
            if self.depth == 2:
                return
            known, track = self._stepping
            if known != id(optimizer):
                track = self._track_of(optimizer)
            windows = self._pending
            if len(windows) == 1 and self._longest == 1 and not self.hands.active:
                self._last, self._pending = windows, []
                track.taken = windows
            else:
                windows = self._take_pending(track)
            if track.count == 0:
                self._first_step(track, optimizer, windows)
            resets = track.resets
            not_reset = 1.0 if resets.asked and not resets.seen else 0.0
            if track not in self._waiting:
                self._waiting.append(track)
            resets.keep(track)
            checked = track.no_gradient == 0.0 and resets.gradient is not None and 8 < track.count < track.ask_again
            rate = optimizer.param_groups[0].get("lr", NAN)
            rest = (
                rate if type(rate) is float else _rate(rate),
                not_reset,
                0.0 if checked else self.no_gradient(track),
                self.clip,
                now - self.began,
                now - self._step_began - self._inside_step,
            )
            self.clip = None
            self.add_row(track, windows, rest)
            if track.plan:
                self.samples.step_ended(track, track.count - 1, track.alive())
            value = windows[-1].value if windows else NAN
            if type(value) is float and not value < track.alarm and track.jumped():
                track.schedule.rush()
                self.samples.schedule.rush()
            if now > self.flush_at or track.kept >= FLUSH_ROWS:
                self.flush(self.clock())
            if track.count == self.max_steps:
                self.recorder.end_later()
            self._open_gap(self.clock())
            if len(windows) == 1:
                self.steady.offer(track, self.optimizers.of(optimizer), windows[0])
        except Exception as error:
            self.broke("step_ended", error)

    def add_row(self, track: Track, windows: list[Window], rest: tuple[Any, ...]) -> None:
        """Add one step to a track, with what was measured of it."""
        for window in windows:
            if window.samples:
                for sample in window.samples:
                    self.samples.write(track, sample, track.count)
        track.add(windows, rest)
        track.stepped = self._backward_began
        self.budget.steps += 1

    def clipped(self, norm: Any, limit: Any) -> None:
        """Note the gradient norm before clipping."""
        try:
            self.clip = (value_of(norm) if isinstance(norm, Tensor) else float(norm), float(limit))
        except Exception as error:
            self.broke("clipped", error)

    def take_clip(self) -> tuple[Any, float] | None:
        """Return norm and limit of the clipping since last asked; None where there was none."""
        clip, self.clip = self.clip, None
        return clip

    def _take_pending(self, track: Track) -> list[Window]:
        if self._pending:
            self._last, self._pending = self._pending, []
            self._longest = max(self._longest, len(self._last))
            if self.hands.active:
                self.hands.leave()
        elif track.taken is self._last:
            return []  # a second step without a new backward
        track.taken = self._last
        return self._last

    def no_gradient(self, track: Track) -> float:
        """Tell whether there was nothing to step on; asked at the first steps, then every 32nd and as long as it is so."""
        track.no_gradient = 0.0 if track.resets.holds_values() or has_gradient(track.alive()) else 1.0
        track.ask_again = track.count + 32
        return track.no_gradient

    # -- tracks --------------------------------------------------------------------------------------------------------

    def _track_of(self, optimizer: Any) -> Track:
        known = self.optimizers.of(optimizer)
        if known.track is None:
            known.track = self.new_track("optimizer", parameters_of(optimizer))
        return known.track

    def new_track(self, what: str, parameters: list[Tensor]) -> Track:
        """Begin a track."""
        track = Track(self.made, what, parameters, Schedule(self.budget, STEP_PROBES))
        track.learn = self.gaps.learn
        self.made += 1
        self.tracks.append(track)
        return track

    def _first_step(self, track: Track, optimizer: Any, windows: list[Window]) -> None:
        if not track.headed:
            track.began = min((window.wall for window in windows), default=self.clock() - self.began)
            self._see("step")
            self.heads.know(track, optimizer, windows)
            self.heads.write(track, optimizer)

    # -- the record --------------------------------------------------------------------------------------------------------

    def fact(self, track: Track | None, name: str, value: Any) -> None:
        """Write a fact of a track, or of the run."""
        self.recorder.add({"kind": "fact", "track": None if track is None else track.number, "name": name, "value": value})

    def add_line(self, track: Track, line: dict[str, Any]) -> None:
        """Add a line that belongs to a track; it waits until it is certain that the track is one."""
        if track.headed:
            self.recorder.add(line)
        else:
            track.lines.append(line)

    def flush(self, now: float, last: bool = False) -> None:
        """Hand all that was kept to the writer."""
        self.flush_at = now + FLUSH_SECONDS
        if not self.hands.active:
            self.hands.take_over(self._pending, self._longest, last)
        if self.hands.active:
            self.hands.write_heads(now - self.began, last)
        for track in self.tracks:
            if track.kept and track.headed:
                self.recorder.add(track.line())
        self.samples.watch_slowly(now, self.tracks)
        self.samples.resolve()
        self.passes.write()
        self.recorder.flush()

    def finish(self) -> None:
        """Close what is open and write the rest."""
        self.steady.leave()
        now = self.clock()
        self.passes.close(now)
        self.samples.write_unfinished(self.tracks)
        for track in self.tracks:
            if track.headed and track.what == "optimizer":
                self.fact(track, "schedules", self.schedules.describe(track))
        self.fact(None, "overhead_share", self.budget.overhead())
        self.flush(now, last=True)
        self.gaps.clocks.close()

    # -- what the short way through equal steps asks and gives back -----------------------------------------------------

    @property
    def one_step_takes_several(self) -> bool:
        """Tell whether a step has ever taken more than one backward call."""
        return self._longest > 1

    @property
    def sees_scaled(self) -> bool:
        """Tell whether a gradient scaler is at work."""
        return self._scaled is not None

    def rows_before_flush(self, track: Track) -> int:
        """Return how many more rows of a track are kept before they are handed on."""
        return FLUSH_ROWS - track.kept

    def waits_for(self, track: Track) -> bool:
        """Tell whether this track is the only one whose gradients are to be reset next."""
        return len(self._waiting) == 1 and self._waiting[0] is track

    def enter_backward(self, began: float) -> None:
        """Stand inside a backward call after one forward, the gradients having been reset."""
        self._waiting = []
        self._steady += 1
        self._backward_began = began

    def take_backward(self, window: Window) -> None:
        """Stand after a backward call."""
        self.window = Window()
        self._pending.append(window)
        self.samples.tick += 1
        self.samples.begun = False

    def enter_step(self, known: Known, track: Track, began: float) -> None:
        """Stand inside an optimiser's step."""
        self._stepping = (id(known.ref()), track)
        self._step_began, self._inside_step = began, 0.0

    def broke(self, name: str, error: Exception) -> None:
        """Drop a part of the observer that raised."""
        setattr(self, name, _nothing)
        self.recorder.note(f"broke: {name}: {type(error).__name__}: {error}")

    def _see(self, name: str) -> None:
        if name not in self.places:
            place = user_place()
            if place is not None:
                self.places[name] = place

    def place(self, name: str) -> list[Any] | None:
        """Return file and line of a place of the current training, where known."""
        place = self.places.get(name)
        return None if place is None else list(place)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Take the place of a part that was dropped."""


def _rate(rate: Any) -> float:
    return float(rate) if not isinstance(rate, Tensor) or rate.is_cpu else NAN
