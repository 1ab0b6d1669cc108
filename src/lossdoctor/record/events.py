"""Turn what the seams see into steps of tracks. The light part: every call here is made at every step."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lossdoctor.record.clocks import Clocks
from lossdoctor.record.facts import loader_fact, settings
from lossdoctor.record.parameters import Keys, Root, Roots, describe
from lossdoctor.record.places import user_place
from lossdoctor.record.samples import Samples
from lossdoctor.record.schedule import Budget, Schedule
from lossdoctor.record.tracks import STEP_PROBES, Backward, Forward, Track, row
from lossdoctor.record.validation import Passes
from lossdoctor.record.values import NAN, Value, total, value_of

if TYPE_CHECKING:
    from lossdoctor.record.recorder import Recorder

FLUSH_SECONDS = 0.5  # what a kill may lose
FLUSH_ROWS = 4096
PENDING = 256  # backward calls without a step after which they count as steps of a loop by hand
_MOST_FORWARDS = 4096  # forwards remembered before one backward


class Call:
    """Hold an outermost call of a model while it lasts."""

    __slots__ = ("began", "grad", "kind", "module", "root", "rows", "training")

    def __init__(self, module: torch.nn.Module, root: Root, grad: bool, rows: float, began: float) -> None:
        self.module = module
        self.root = root
        self.training = module.training
        self.grad = grad
        self.rows = rows
        self.began = began
        self.kind = "training"  # or `validation`, or `foreign`: a model that nobody trains


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
        self.clocks = Clocks()
        self.roots = Roots()
        self.keys = Keys()
        self.tracks: list[Track] = []
        self.tracks_seen = False
        self.samples = Samples(self)
        self.passes = Passes(self)
        self._by_optimizer: dict[int, tuple[weakref.ref[Any], Track]] = {}
        self._optimizers: dict[int, tuple[weakref.ref[Any], list[bool]]] = {}
        self._by_hand = True  # as long as no optimiser steps, each backward counts as a step
        self._hands: dict[tuple[Any, ...], Track] = {}
        self._hand: Track | None = None
        self._hand_not_reset = NAN
        self._waiting: list[Track] = []  # tracks whose gradients were not reset since their last step
        self._pending: list[Backward] = []
        self._last: list[Backward] = []
        self._longest = 1
        self.began = self.clock()
        self._flush_at = 0.0
        self._places: dict[str, tuple[str, int]] = {}
        self._looking = True
        self._loader_fact: dict[str, Any] = {}
        self._clip = (NAN, NAN)
        self._scale: tuple[weakref.ref[Tensor], Any] | None = None
        self._step_began = 0.0
        self._inside_step = 0.0
        self._forget_window()
        self._loader = 0.0
        self._gap_open: tuple[float, float, float] | None = None

    @classmethod
    def silent(cls) -> Observer:
        """Return an observer whose record goes nowhere."""
        from lossdoctor.record.recorder import Recorder

        return cls(Recorder.silent(), 0.01)

    def _forget_window(self) -> None:
        self._forwards: list[Forward] = []
        self._calls: list[tuple[int, Value]] = []
        self._forward_seconds = 0.0
        self._mixed = False
        self._gap = self._idle = self._gap_cpu = NAN
        self._loader_before = 0.0

    # -- the model's forward ---------------------------------------------------------------------------------------

    def forward_began(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Note that a module is called from outside any other; None where it is not a model that may learn."""
        try:
            root = self.roots.of(module)
            if not root.elements:
                return None
            grad = torch.is_grad_enabled()
            call = Call(module, root, grad, _rows(args, kwargs), self.clock())
            if not grad or not root.trainable or (root.trained_in_train_mode and not module.training):
                call.kind = "validation" if not module.training or not grad else "foreign"
                if call.kind == "validation" and self.passes.own(root):
                    self.passes.forward_began(call, args, kwargs)
                else:
                    call.kind = "foreign"
            else:
                self._training_forward_began(call, args, kwargs)
            return call
        except Exception as error:
            self.broke("forward_began", error)
            return None

    def _training_forward_began(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.passes.open:
            self.passes.close(call.began)
        if not self._forwards:
            self._close_gap(call.began)
            self.samples.begin()
        if self._looking:
            self._see("forward")
        self._loader_before += self._loader
        self._loader = 0.0
        if self.samples.plan:
            self.samples.forward_began(call, args, kwargs)

    def forward_ended(self, call: Call, result: Any) -> None:
        """Note that the outermost call of a model returned."""
        try:
            if call.kind != "training":
                if call.kind == "validation":
                    self.passes.forward_ended(call, result)
                return
            if self.samples.plan:
                self.samples.forward_ended(call)
            self._forward_seconds += self.clock() - call.began
            if len(self._forwards) < _MOST_FORWARDS:
                if self._forwards and self._forwards[-1].training != call.training:
                    self._mixed = True
                self._forwards.append(Forward(call.root, call.training, call.rows))
        except Exception as error:
            self.broke("forward_ended", error)

    def forward_failed(self, call: Call) -> None:
        """Note that a model raised."""
        try:
            self.samples.forward_ended(call)
        except Exception as error:
            self.broke("forward_failed", error)

    # -- losses ------------------------------------------------------------------------------------------------------

    def loss_called(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        """Note the value of a known loss function."""
        try:
            if not isinstance(value, Tensor):
                return
            if not value.requires_grad or self.passes.open:
                self.passes.loss_called(kind, args, kwargs, value)
                return
            self._calls.append((len(self._forwards), value_of(value)))
            if self._looking:
                self._see("loss")
            if self.samples.plan or not self.samples.begun:
                self.samples.loss_called(kind, args, kwargs, value)
        except Exception as error:
            self.broke("loss_called", error)

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        """Note by what a gradient scaler multiplied a loss."""
        try:
            if isinstance(result, Tensor) and isinstance(scaler._scale, Tensor):
                self._scale = (weakref.ref(result), outputs)
        except Exception as error:
            self.broke("scaled", error)

    # -- backward ----------------------------------------------------------------------------------------------------

    def backward_began(self, tensors: Any) -> None:
        """Note the entry of an outermost backward."""
        try:
            if self._waiting:
                self._look_for_resets()
            if self.passes.open:
                self.passes.close(self.clock())
            if self._by_hand:
                self._hand_began(tensors)
            if self._looking:
                self._see("backward")
            self.samples.backward_began(tensors)
        except Exception as error:
            self.broke("backward_began", error)
        self._backward_began = self.clock()

    def _look_for_resets(self) -> None:
        for track in self._waiting:
            track.resets.look()
        if any(track.resets.seen for track in self._waiting):
            self._waiting = [track for track in self._waiting if not track.resets.seen]

    def backward_ended(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the end of an outermost backward: what it was called on, and what led to it."""
        try:
            now = self.clock()
            for track in self._waiting:
                track.resets.follow()
            forwards, calls = self._forwards, [call for _, call in self._calls]
            if self._mixed:
                forwards, calls = self._split_off_validation()
            for forward in forwards[-8:]:
                forward.root.trained_in_train_mode = forward.training
            value = self._backward_value(tensors, args, kwargs)
            self._pending.append(
                Backward(
                    value,
                    calls,
                    forwards,
                    self._forward_seconds,
                    now - self._backward_began,
                    self._loader_before,
                    *self._gaps(bool(forwards)),
                    now - self.began,
                    self.samples.backward_ended(value),
                )
            )
            if self._hand is not None:
                self._hand_ended(self._hand, self._pending[-1])
                if len(self._pending) > PENDING:
                    del self._pending[0]
            self._inside_step += self._forward_seconds + now - self._backward_began
            self._forget_window()
            self._open_gap(now)
            if now > self._flush_at:
                self.flush(now)
        except Exception as error:
            self.broke("backward_ended", error)

    def _gaps(self, called: bool) -> tuple[float, float, float]:
        """Return gap, idle time and CPU time of the gap; 0 for a further backward of the same forwards."""
        if called or self._by_hand or not self._pending:
            return self._gap, self._idle, self._gap_cpu
        return 0.0, 0.0, 0.0

    def _backward_value(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        if not isinstance(tensors, Tensor):
            return total([value_of(tensor) for tensor in tensors if isinstance(tensor, Tensor)])
        if self._scale is not None and self._scale[0]() is tensors:
            value = value_of(self._scale[1])  # the loss as it was before scaling
            self._scale = None
            return value
        if tensors.numel() == 1:
            return value_of(tensors)
        weights = args[0] if args else kwargs.get("grad_tensors")
        if isinstance(weights, Tensor):
            return value_of((tensors.detach() * weights.detach()).sum())
        return value_of(tensors)

    def _split_off_validation(self) -> tuple[list[Forward], list[Value]]:
        """Keep the forwards after the last change of mode: the ones before were a look at other data without `no_grad`."""
        mode = self._forwards[-1].training
        start = len(self._forwards)
        while start and self._forwards[start - 1].training == mode:
            start -= 1
        return self._forwards[start:], [call for index, call in self._calls if index > start]

    # -- the optimiser's step ----------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: Any) -> None:
        """Note that an optimiser exists."""
        try:
            self._optimizers[id(optimizer)] = (weakref.ref(optimizer), [False])
            if not self._looking:
                self._looking, self._places = True, {}
            self.roots.refresh()
        except Exception as error:
            self.broke("optimizer_made", error)

    def zero_grad_called(self, optimizer: Any) -> None:
        """Note that an optimiser's own `zero_grad` was called."""
        known = self._optimizers.get(id(optimizer))
        if known is not None:
            known[1][0] = True

    def step_began(self, optimizer: Any) -> None:
        """Note the start of an optimiser's step."""
        self._step_began = self.clock()
        self._inside_step = 0.0

    def step_before(self, optimizer: Any) -> None:
        """Measure right before the parameters move: at the start of the step, or at the end of its closure."""
        try:
            track = self._track_of(optimizer)
            if track.count >= track.schedule.earliest:
                self.samples.step_before(track, track.count, track.alive())
        except Exception as error:
            self.broke("step_before", error)

    def step_ended(self, optimizer: Any) -> None:
        """Note the end of an optimiser's step and make it a row of its track."""
        try:
            now = self.clock()
            if self.depth == 2:
                return  # a step within backward, one per parameter: the backward is the step
            track = self._track_of(optimizer)
            entries = self._take_pending(track)
            if track.count == 0:
                self._first_step(track, optimizer, entries)
            not_reset = 1.0 if track.resets.asked and not track.resets.seen else 0.0
            if not track.resets.asked or track.resets.seen or track not in self._waiting:
                self._waiting = [each for each in self._waiting if each is not track] + [track]
            parameters = track.alive()
            track.resets.keep(parameters)
            no_gradient = self._no_gradient(track, parameters)
            mode, rows = track.mode_and_rows(entries)
            rest = (
                _rate(optimizer),
                not_reset,
                no_gradient,
                *self._clip,
                mode,
                rows,
                now - self.began,
                now - self._step_began - self._inside_step,
            )
            self._add_row(track, entries, rest)
            if track.plan:
                self.samples.step_ended(track, track.count - 1, parameters)
            self._clip = (NAN, NAN)
            now = self.clock()
            self._open_gap(now)
            if now > self._flush_at or len(track.rows) >= FLUSH_ROWS:
                self.flush(now)
            if self.max_steps is not None and track.count >= self.max_steps:
                self.recorder.end_later()
        except Exception as error:
            self.broke("step_ended", error)

    def _add_row(self, track: Track, entries: list[Backward], rest: tuple[Any, ...]) -> None:
        track.rows.append(row(track.count, entries, rest))
        for entry in entries:
            for sample in entry.samples:
                self.samples.write(track, sample, track.count)
        track.count += 1
        track.stepped = self.clock()
        self.tracks_seen = True
        self.budget.steps += 1

    def clipped(self, norm: Any, limit: Any) -> None:
        """Note the gradient norm before clipping."""
        try:
            self._clip = (value_of(norm) if isinstance(norm, Tensor) else float(norm), float(limit))  # type: ignore[assignment]
        except Exception as error:
            self.broke("clipped", error)

    def _take_pending(self, track: Track) -> list[Backward]:
        if self._pending:
            self._last, self._pending = self._pending, []
            self._longest = max(self._longest, min(len(self._last), PENDING))
            if self._by_hand:
                self._leave_hands()
            track.last_backward = self._last
            return self._last
        if track.last_backward is self._last:
            return []  # a second step without a new backward
        track.last_backward = self._last
        return self._last

    def _no_gradient(self, track: Track, parameters: list[Tensor]) -> float:
        """Tell whether there was nothing to step on: at the first steps, then every 16th and as long as it is so."""
        sentinel = track.resets._sentinel() if track.resets._sentinel is not None else None
        if sentinel is not None and sentinel.grad is not None and track.no_gradient == 0.0 and track.count > 8 and track.count % 16:
            return 0.0
        track.no_gradient = (
            0.0 if any(parameter.grad is not None and bool(_any(parameter.grad)) for parameter in reversed(parameters)) else 1.0
        )
        return track.no_gradient

    # -- tracks --------------------------------------------------------------------------------------------------------

    def _track_of(self, optimizer: Any) -> Track:
        known = self._by_optimizer.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        track = self._new_track("optimizer", parameters)
        self._by_optimizer[id(optimizer)] = (weakref.ref(optimizer), track)
        return track

    def _new_track(self, what: str, parameters: list[Tensor]) -> Track:
        track = Track(len(self.tracks), what, parameters, Schedule(self.budget, STEP_PROBES))
        self.tracks.append(track)
        return track

    def _first_step(self, track: Track, optimizer: Any, entries: list[Backward]) -> None:
        forwards = [forward for entry in entries for forward in entry.forwards]
        track.choose_root(forwards)
        self._see("step")
        self._head(track, optimizer, forwards)

    def _head(self, track: Track, optimizer: Any, forwards: list[Forward]) -> None:
        """Write what a track is."""
        parameters = track.alive()
        named = list(zip(parameters, _fallback_names(optimizer, len(parameters)), strict=True))
        called = list(dict.fromkeys(forward.root for forward in forwards))
        roots = [root for root in called if track.identities & root.names.keys()]
        roots += [root for root in self.roots.known.values() if root not in roots]
        began = min([entry.wall for entry in self._last] or [self.clock() - self.began]) if optimizer is not None else track.began
        described = list(describe(named, roots, self.keys))
        self.recorder.add({"kind": "track", "track": track.number, "what": track.what, "began": began, "parameters": described})
        if optimizer is not None:
            self.fact(track, "optimizer", settings(optimizer))
        self.fact(track, "where", dict(self._places))
        self._looking, track.headed = False, True
        track.names = [each["name"] for each in described]
        track.roles = [each["role"] for each in described]
        self.samples.track_began(track)
        if self._loader_fact:
            self.fact(track, "loader", self._loader_fact)

    # -- loops that step by hand, or forget to step ------------------------------------------------------------------------

    def _hand_began(self, tensors: Any) -> None:
        """Know which parameters a backward reaches, as long as no optimiser steps; they may have moved since the last."""
        key: tuple[Any, ...] = tuple({id(forward.root) for forward in self._forwards}) or (user_place(),)
        track = self._hands.get(key)
        if track is None or track.count < 3 or not track.alive():
            found = self.samples.reached(tensors, [forward.root for forward in self._forwards])
            if track is None or {id(parameter) for parameter in found} != track.identities:
                track = self._hands[key] = self._new_track("manual", found)
        self._hand = track
        self._hand_not_reset = NAN
        if track.count:
            track.resets.look()
            self._hand_not_reset = 0.0 if track.resets.seen else 1.0
            if track.plan:
                self.samples.step_ended(track, track.count - 1, track.alive())

    def _hand_ended(self, track: Track, entry: Backward) -> None:
        """Make the backward a step: the gradients are there, and the parameters have not moved yet."""
        parameters = track.alive()
        if track.count == 0:
            track.choose_root(entry.forwards)
            track.began = entry.wall
        if track.count >= track.schedule.earliest:
            self.samples.step_before(track, track.count, parameters)
        track.resets.keep(parameters)
        mode, rows = track.mode_and_rows([entry])
        no_gradient = self._no_gradient(track, parameters)
        rest = (NAN, self._hand_not_reset, no_gradient, *self._clip, mode, rows, entry.wall, 0.0)
        self._clip = (NAN, NAN)
        self._add_row(track, [entry], rest)

    def _hands_count(self, last: bool) -> bool:
        """Tell whether backward calls without a step are steps by now, and not one of an accumulation that goes on."""
        tracks = self._hands.values()
        if any(track.headed for track in tracks) or last:
            return True
        waited = self.clock() - self.began - min(track.began for track in tracks) > FLUSH_SECONDS
        return waited and max(track.count for track in tracks) > 1

    def _write_heads_by_hand(self) -> None:
        for track in self._hands.values():
            if track.count and not track.headed:
                self._head(track, None, [Forward(root, True, NAN) for root in track.models])
                self.fact(track, "optimizers_idle", self._idle_optimizers(track))

    def _leave_hands(self) -> None:
        """Forget what no optimiser had stepped on: one does now."""
        self._by_hand, self._hand = False, None
        for track in self._hands.values():
            if not track.headed:
                track.rows.clear()
        self._hands = {}

    def _give_up_waiting(self, last: bool) -> None:
        """Take backward calls that pile up without a step for steps by hand, from now on."""
        limit = self._longest if last else max(PENDING, 4 * self._longest)
        if len(self._pending) <= limit:
            return
        self._by_hand = True
        roots = [forward.root for entry in self._pending for forward in entry.forwards][-8:]
        if last and roots:
            track = self._new_track("manual", self.samples.reached(None, roots))
            self._hands[tuple({id(root) for root in roots})] = track
            for entry in self._pending:
                self._hand_ended(track, entry)
        self._pending = self._pending[-self._longest :]

    def _idle_optimizers(self, track: Track) -> list[dict[str, Any]]:
        found = []
        for reference, (reset,) in self._optimizers.values():
            optimizer = reference()
            if optimizer is None or id(optimizer) in self._by_optimizer:
                continue
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            found.append({"name": type(optimizer).__name__, "zero_grad": reset, "held": len(held), "shared": len(held & track.identities)})
        return found

    # -- the data loader and the gap -------------------------------------------------------------------------------------

    def loader_gave(self, iterator: Any, batch: Any, began: float) -> None:
        """Note that a data loader gave a batch."""
        self._loader += self.clock() - began
        if self._looking:
            try:
                self._see_loader(iterator)
            except Exception as error:
                self.broke("loader_gave", error)

    def _see_loader(self, iterator: Any) -> None:
        """Remember the loader; the last one before the training's first forward feeds it."""
        place = user_place()
        if place is not None and "forward" not in self._places:
            self._places["loader"] = place
            self._loader_fact = loader_fact(iterator)

    def loader_ended(self, iterator: Any, began: float) -> None:
        """Note the end of an epoch of a data loader."""
        self._loader += self.clock() - began
        self.passes.loader_ended()

    def _open_gap(self, now: float) -> None:
        self._gap_open = (now, *self.clocks.read())

    def take_loader(self) -> float:
        """Return the time that loaders took since last asked; it belongs to a validation pass, not to a step."""
        seconds, self._loader = self._loader, 0.0
        return seconds

    def _close_gap(self, now: float) -> None:
        if self._gap_open is None:
            return
        began, cpu_before, queue_before = self._gap_open
        cpu, queue = self.clocks.read()
        excluded = self.passes.take_seconds()
        self._gap = max(0.0, now - began - excluded)
        if not excluded:
            self._gap_cpu = cpu - cpu_before
            self._idle = max(0.0, self._gap - self._gap_cpu - (queue - queue_before))

    # -- the record --------------------------------------------------------------------------------------------------------

    def fact(self, track: Track | None, name: str, value: Any) -> None:
        """Write a fact of a track, or of the run."""
        self.recorder.add({"kind": "fact", "track": None if track is None else track.number, "name": name, "value": value})

    def flush(self, now: float | None = None, last: bool = False) -> None:
        """Hand all that was kept to the writer."""
        self._flush_at = (self.clock() if now is None else now) + FLUSH_SECONDS
        if not self._by_hand:
            self._give_up_waiting(last)
        if self._hands and self._hands_count(last):
            self._write_heads_by_hand()
        for track in self.tracks:
            if track.rows and track.headed:
                self.recorder.add(track.line())
        self.samples.resolve()
        self.passes.write()
        self.recorder.flush()

    def finish(self) -> None:
        """Close what is open and write the rest."""
        self.passes.close(self.clock())
        self.flush(last=True)
        self.clocks.close()

    def broke(self, name: str, error: Exception) -> None:
        """Drop a part of the observer that raised."""
        setattr(self, name, _nothing)
        self.recorder.note(f"broke: {name}: {type(error).__name__}: {error}")

    def _see(self, name: str) -> None:
        if name not in self._places:
            place = user_place()
            if place is not None:
                self._places[name] = place

    def place(self, name: str) -> list[Any] | None:
        """Return file and line of a place of the current training, where known."""
        place = self._places.get(name)
        return None if place is None else list(place)

    def held(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return these parameters and those of every optimiser that is alive."""
        found = {id(parameter): parameter for parameter in parameters}
        for reference, _ in self._optimizers.values():
            optimizer = reference()
            for group in optimizer.param_groups if optimizer is not None else ():
                found.update((id(parameter), parameter) for parameter in group["params"])
        return list(found.values())


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Take the place of a part that was dropped."""


def _any(tensor: Tensor) -> Any:
    return (tensor.coalesce().values() if tensor.is_sparse else tensor).any()


def _rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            return float(value.shape[0]) if value.dim() else 1.0
    return NAN


def _rate(optimizer: Any) -> float:
    rate = optimizer.param_groups[0].get("lr", NAN) if optimizer.param_groups else NAN
    return rate if isinstance(rate, float) else float(rate) if not isinstance(rate, Tensor) or rate.is_cpu else NAN


def _fallback_names(optimizer: Any, count: int) -> list[str]:
    if optimizer is None:
        return [f"parameter{index}" for index in range(count)]
    return [f"group{number}.{index}" for number, group in enumerate(optimizer.param_groups) for index in range(len(group["params"]))][
        :count
    ]
