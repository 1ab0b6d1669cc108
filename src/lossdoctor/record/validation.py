"""See validation passes: stretches of forwards of a trained model that no backward follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lossdoctor.record.pairing import Pairing
from lossdoctor.record.schedule import Schedule
from lossdoctor.record.tracks import Track
from lossdoctor.record.values import NAN, Value, numbers, value_of
from lossdoctor.record.window import Call, Forward, Window

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer
    from lossdoctor.record.parameters import Root

MOST_HASHES = 4096  # of one pass, docs/architecture.md
_HASHES = 256  # of one forward
_FEW_HASHES = 16  # of a forward of a pass that is not measured in full: enough to tell one data set from another
_FULL = 32  # passes that are measured fully, before the budget decides
_WRITTEN = 1024  # passes that are all written; later ones ever more rarely
_OPERATION_SECONDS = 3e-6  # what following one torch function costs
_FORWARD_SECONDS = 100e-6  # and what comparing its outputs with the targets costs a forward
_SHARE = 0.005  # of the time from one pass to the next: what full measuring may always take
_SEEN, _UNSEEN = 0.2, 0.02  # share of trained rows: forwards on training data and on other data are two passes
_CLASSES = ("cross_entropy", "nll_loss")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


class Pass:
    """Gather one validation pass."""

    def __init__(self, root: Root, began: float, pairing: Pairing | None, full: bool = False) -> None:
        self.root = root
        self.full = full
        self.began = self.ended = began
        self.pairing = pairing
        self.forwards = 0
        self.calls: list[Forward] = []  # with gradients on, in eval mode: it may yet turn out to be training
        self.forward_seconds = 0.0
        self.rows = 0.0
        self.last_rows = 0.0
        self.grad = False
        self.training = False
        self.random = False
        self.losses: list[tuple[Value, float]] = []
        self.loss_kind: str | None = None
        self.hashes: list[str] = []
        self.known_rows = 0
        self.input: Any = None
        self.modes: dict[str, Any] | None = None
        self.seen: bool | None = None
        self.epoch_over = False
        self.track: Track | None = None
        self.step = 0

    def fields(self) -> dict[str, Any]:
        """Return the row of `validation`; reads what still lies on a device."""
        correct = self.pairing.correct() if self.pairing is not None else None
        plain = self.pairing.plain() if self.pairing is not None else None
        r2 = self.pairing.r2() if self.pairing is not None else None
        values = numbers([value for value, _ in self.losses])
        weights = [weight for _, weight in self.losses]
        total = sum(weights)
        modes = self.modes or {}
        sensitive = modes.get("sensitive")
        return {
            "began": self.began,
            "seconds": self.ended - self.began,
            "forwards": self.forwards,
            "rows": self.rows,
            "grad_enabled": self.grad,
            "root_training": self.training,
            "sensitive": sensitive,
            "sensitive_in_train": None if sensitive is None else sensitive - (modes.get("sensitive_in_eval") or 0),
            "random": self.random,
            "repeated": 1.0 - len(set(self.hashes)) / len(self.hashes) if self.hashes else None,
            "loss": sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total else None,
            "loss_kind": self.loss_kind,
            "correct": correct[0] / correct[1] if correct is not None and correct[1] else None,
            "r2": r2[0] if r2 is not None else None,
            "largest_correct": plain[0] / plain[2] if plain is not None and plain[2] else None,
            "decided_correct": plain[1] / plain[2] if plain is not None and plain[2] else None,
            "softmax_over_rows": self.pairing.softmax_over_rows if self.pairing is not None else 0,
            "paired_rows": correct[1] if correct is not None else r2[1] if r2 is not None else 0,
            "hashes": self.hashes,
            "input": self.input,
            "seen": self.known_rows / len(self.hashes) if self.hashes else None,
        }

    @property
    def figures(self) -> bool:
        """Tell whether the pass shows how good the model is."""
        return bool(self.losses) or (self.pairing is not None and (self.pairing.correct() or self.pairing.r2()) is not None)


class Passes:
    """Recognise the validation passes of one process.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.open: Pass | None = None
        self.count = 0
        self._schedule = Schedule(observer.budget, ("validation",))
        self._done: list[Pass] = []
        self._waiting: list[Pass] = []
        self.seconds = 0.0
        self._before = self._spent = self._cost = self._follow_cost = 0.0
        self._own: dict[int, tuple[int, Track | None]] = {}
        self._pairing: Pairing | None = None

    # -- what a pass is made of ------------------------------------------------------------------------------------------

    def forward_began(self, call: Call, module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Note a forward without a backward to come."""
        observer = self.observer
        self.leave()
        observer.drawn = False
        loader = observer.loaders.take_seconds()
        if self.open is not None and (self.open.epoch_over or self.open.grad != call.grad):
            self.close(call.began)
        hashes: list[str] = []
        current = self.open or self._begin(call, call.began - loader)
        if current.pairing is None and current.forwards and call.rows == current.last_rows:
            return  # goes on with what it began with; another size may be another data set
        current.last_rows = call.rows
        if len(current.hashes) < MOST_HASHES:
            most = _HASHES if current.pairing is not None else _FEW_HASHES
            hashes = observer.samples.hash_rows([*args, *kwargs.values()], most, "validation") or []
        known = len(observer.samples.trained_rows.intersection(hashes))
        seen = _decide(known, len(hashes))
        if current.seen is not None and seen is not None and current.seen != seen:
            self.close(call.began)
            current = self._begin(call, call.began)
        if seen is not None:
            current.seen = seen
        current.hashes.extend(hashes)
        current.known_rows += sum(each in observer.samples.trained_rows for each in hashes)
        observer.samples.run("validation", observer.capture.validates, current.forwards == 0, [*args, *kwargs.values()])
        if current.pairing is None:
            return
        if current.forwards == 0:
            current.input = observer.samples.run("validation", "describe_inputs", tuple(args), kwargs)
            current.modes = observer.samples.run("validation", "describe_modes", module)

    def _begin(self, call: Call, began: float) -> Pass:
        interval, self._before = began - self._before, began
        full = self.count < _FULL or self._cost < _SHARE * interval or self._schedule.due("validation", self.count)
        follow = full or self._follow_cost < _SHARE * interval
        self._spent = self.observer.budget.costs["validation"].total
        self.open = Pass(call.root, began - self.observer.began, Pairing(self._quiet) if follow else None, full)
        self.open.grad = call.grad
        return self.open

    def _quiet(self, function: Any) -> Any:
        return self.observer.samples.run("validation", function)

    def forward_ended(self, call: Call, result: Any) -> None:
        """Note the outputs of a forward without a backward to come."""
        current = self.open
        if current is None:
            return
        current.ended = self.observer.clock() - self.observer.began
        current.rows += call.rows if call.rows == call.rows else 0.0
        if call.grad:
            current.calls = [*current.calls[-63:], (call.root, call.training, call.rows)]
            current.forward_seconds += current.ended + self.observer.began - call.began
            self.observer.samples.mark(result, "validation")
        current.training = current.training or call.training
        current.random = current.random or self.observer.drawn
        current.forwards += 1
        if current.pairing is not None:
            for output in _outputs(result):
                current.pairing.follow(output, current.forwards)
            if not call.grad:
                current.pairing.enter()

    def loss_called(self, kind: str, args: Sequence[Any], kwargs: dict[str, Any], value: Tensor) -> None:
        """Note a known loss call of a pass."""
        current = self.open
        if current is None:
            return
        output = args[0] if args else kwargs.get("input")
        rows = float(output.shape[0]) if isinstance(output, Tensor) and output.dim() else 1.0
        reduction = kwargs.get("reduction", "mean")
        loss = value_of(value)
        if reduction == "sum":
            loss = loss / rows if isinstance(loss, float) else NAN
        if current.loss_kind in (None, kind):
            current.loss_kind = kind
            current.losses.append((loss, rows))
        target = args[1] if len(args) > 1 else kwargs.get("target")
        if current.pairing is not None and isinstance(output, Tensor) and isinstance(target, Tensor):
            pairing = current.pairing
            with torch._C.DisableTorchFunction():  # what we decide ourselves is no decision of the script
                self._quiet(lambda: _meet(kind, pairing, current.forwards, output, target))

    def surplus(self, forwards: Sequence[Forward], losses: Sequence[Value], now: float) -> None:
        """Take forwards that turned out to lead to no backward, although gradients were on."""
        current = Pass(forwards[0][0], now - self.observer.began, None)
        current.forwards = len(forwards)
        current.rows = sum(rows for _, _, rows in forwards if rows == rows)
        current.grad, current.training = True, forwards[-1][1]
        rows = current.rows / len(forwards)
        current.losses = [(loss, rows) for loss in losses]
        self._finish(current)

    def loader_ended(self) -> None:
        """Note the end of a loader's epoch: the next forward belongs to another pass."""
        if self.open is not None:
            self.open.epoch_over = True

    def leave(self) -> None:
        """Stop following outputs."""
        if self.open is not None and self.open.pairing is not None:
            self.open.pairing.leave()
            if self.open.pairing.failed is not None:
                self.observer.recorder.note(f"broke: pairing: {self.open.pairing.failed}")
                self.open.pairing.failed = None

    def close(self, now: float) -> None:
        """End the pass that is open."""
        self.leave()
        current, self.open = self.open, None
        if current is not None and current.forwards:
            self.seconds += current.ended - current.began
            if current.pairing is not None:
                self.observer.samples.run("validation", self.observer.capture.met, current.pairing.targets)
                self._follow_cost = current.pairing.operations * _OPERATION_SECONDS + current.forwards * _FORWARD_SECONDS
            if current.full:
                self._cost = self.observer.budget.costs["validation"].total - self._spent + self._follow_cost
            self._finish(current)

    def was_training(self, window: Window, usual: int) -> bool:
        """Take a pass that a backward follows for what it is: training in eval mode; tell whether it was so.

        Args:
            window: of the backward; gets the forwards and the losses.
            usual: forwards before a backward so far.
        """
        current = self.open
        if current is None or not current.calls or window.forwards:
            return False
        self.leave()
        self.open = None
        take = max(1, usual)
        window.forwards = current.calls[-take:]
        window.calls = [(1, value) for value, _ in current.losses[-take:]]
        window.forward_seconds = current.forward_seconds * len(window.forwards) / current.forwards
        if current.forwards > take:  # what came before was a look at other data
            self._finish(current)
        return True

    def take_seconds(self) -> float:
        """Return how long passes took since last asked."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    # -- where it belongs, and the record ----------------------------------------------------------------------------------

    def _finish(self, current: Pass) -> None:
        if not self.observer.heads.written:
            self._waiting = [*self._waiting[-7:], current]
            return
        track = self.track_of(current.root)
        if track is None:
            return
        self.count += 1
        current.track, current.step = track, track.count
        often = self.count > 16 and self.count > 0.2 * track.count
        if often and not current.figures:
            return  # a forward without gradients that is a part of every step
        if self.count < _WRITTEN or self.count % (self.count // (_WRITTEN // 2)) == 0:
            self._done.append(current)

    def own(self, root: Root) -> bool:
        """Tell whether a model is one that is trained, or may be as long as nothing was."""
        return not self.observer.heads.written or self.track_of(root) is not None

    def track_of(self, root: Root) -> Track | None:
        """Return the track that moves a model's parameters last, or that of the model which this one is a copy of."""
        known = self._own.get(id(root))
        if known is not None and known[0] == self.observer.heads.written:
            return known[1]
        tracks = [track for track in self.observer.tracks if track.headed]
        found = [track for track in tracks if track.identities & root.names.keys()]
        if not found:
            found = [track for track in tracks if track.root is not None and root.is_copy_of(track.root)]
        best = max(found, key=lambda track: track.stepped, default=None)
        self._own[id(root)] = (self.observer.heads.written, best)
        return best

    def write(self) -> None:
        """Add the finished passes to the record."""
        if self._waiting and self.observer.heads.written:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self._finish(each)
                each.step = 0
        done, self._done = self._done, []
        for each in sorted(done, key=lambda each: each.step):
            line = {"kind": "sample", "step": each.step, "signal": "validation", "fields": each.fields()}
            if each.track is not None:
                self.observer.recorder.add({**line, "track": each.track.number})


def _decide(known: int, of: int) -> bool | None:
    if of < 4:
        return None
    share = known / of
    return True if share >= _SEEN else False if share <= _UNSEEN else None


def _outputs(result: Any) -> list[Tensor]:
    values = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else (result,)
    return [value for value in values if isinstance(value, Tensor)][:4]


def _meet(kind: str, pairing: Pairing, base: int, output: Tensor, target: Tensor) -> None:
    if kind in _CLASSES and not target.is_floating_point() and output.dim() == target.dim() + 1:
        axis = 1 if output.dim() > 1 else 0
        valid = target != -100  # the default of ignore_index
        hits = (output.argmax(axis) == target)[valid]
        pairing.meet_in_loss(base, output, target, hits)
    elif kind in _BINARY and output.shape == target.shape:
        limit = 0.0 if kind.endswith("logits") else 0.5
        pairing.meet_in_loss(base, output, target, (output > limit) == (target > 0.5))
    elif kind in _REGRESSION and output.shape == target.shape:
        pairing.meet_in_loss(base, output, target, None)
