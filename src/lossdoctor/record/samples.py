"""Run the costly probes when they are due, each timed, and dropped alone when it raises.

Probes of a forward (batch, hashes, loss call, activations, modes, graph) are planned when a model is called first after a
backward; what they measured belongs to whichever optimiser takes that backward. Probes of a step are planned per track.
"""

from __future__ import annotations

import importlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lossdoctor.record.facts import model_fact
from lossdoctor.record.parameters import Root
from lossdoctor.record.schedule import DENSITY, Schedule
from lossdoctor.record.tracks import Track

if TYPE_CHECKING:
    from lossdoctor.record.events import Observer
    from lossdoctor.record.window import Call

FORWARD_PROBES = ("batch", "hashes", "loss_call", "activations", "graph", "modes")
_MOST_CALLS = 8  # loss calls, and models, that are described of one backward
SLOW_SECONDS = 0.5
KEPT = 8  # graphs of earlier steps that are alive before it is looked for what holds them
_SEEN_ROWS = 1 << 16  # hashes of trained rows that are remembered

_PROBES = {
    "gradient_norms": "gradient",
    "weight_norms": "weights",
    "UpdateSampler": "update",
    "zero_rows": "zero_rows",
    "describe_inputs": "batch",
    "describe_target": "batch",
    "row_hashes": "hashes",
    "describe_loss_call": "loss_call",
    "describe_graph": "graph",
    "leaves": "graph",
    "History": "history",
    "keepers": "keepers",
    "ActivationSampler": "activations",
    "describe_modes": "modes",
    "describe_coverage": "coverage",
    "resident_memory": "memory",
    "thread_times": "thread",
}


class Sample(NamedTuple):
    """Hold one measurement until the step that it belongs to is known."""

    signal: str
    content: dict[str, Any]


class Samples:
    """Run the costly probes of one process.

    Args:
        observer: what watches the process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.budget = observer.budget
        self.schedule = Schedule(observer.budget, FORWARD_PROBES)
        self.plan: set[str] = set()
        self.tick = self.base = 0  # backward calls so far, and when the last training began
        self.begun = False
        self.broken: set[str] = set()
        self.trained_rows: set[str] = set()
        self.deferred: list[tuple[dict[str, Any], Tensor]] = []
        self._functions: dict[str, Callable[..., Any] | None] = {}
        self._models: set[int] = set()
        self._activations: list[Any] = []
        self._reached: list[weakref.ref[Tensor]] | None = None
        self._history: Any = None
        self._looked_for_keepers = False
        self._slow_at = 0.0
        self._forget()

    def _forget(self) -> None:
        self._batch: dict[str, Any] | None = None
        self._hashes: dict[str, Any] | None = None
        self._calls: list[dict[str, Any]] = []
        self._layers: list[dict[str, Any]] = []
        self._modes: list[tuple[Any, dict[str, Any]]] = []
        self._graph: dict[str, Any] | None = None
        self._kept: dict[str, Any] | None = None
        self._models.clear()

    # -- a forward and what follows it ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Plan what is measured of the coming backward and the forwards before it."""
        self.begun = True
        if self.tick >= self.schedule.earliest:
            self._reached = None
            self.plan = self.schedule.plan(self.tick) - self.broken

    def training_began(self) -> None:
        """Look fully at the first steps of a further training."""
        self.base = self.tick
        self.budget.grant()
        self.schedule.restart(self.tick)

    def forward_began(self, call: Call, module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Measure what enters a model, once for each model of a backward."""
        if id(call.root) in self._models or len(self._models) >= _MOST_CALLS:
            return
        self._models.add(id(call.root))
        self.observer.drawn = False
        if self._batch is None and "batch" in self.plan:
            inputs = self.run("batch", "describe_inputs", tuple(args), kwargs)
            self._batch = None if inputs is None else {"inputs": inputs, "target": None}
        if self._hashes is None and "hashes" in self.plan:
            hashes = self.hash_rows([*args, *kwargs.values()])
            if hashes:
                self._remember(hashes)
                self._hashes = {"hashes": hashes, "target_hashes": None}
        if "modes" in self.plan:
            modes = self.run("modes", "describe_modes", module)
            if modes is not None:
                self._modes.append((call.root, modes))
        if "activations" in self.plan:
            self._watch_activations(module)

    def _watch_activations(self, module: torch.nn.Module) -> None:
        sampler = self.run("activations", "ActivationSampler", module)
        if sampler is not None:
            self._activations.append(sampler)
            self.run("activations", sampler.__enter__)

    def forward_ended(self, call: Call, result: Any = None) -> None:
        """Take off what a forward carried, and mark its graph."""
        self.mark(result)
        for root, modes in self._modes:
            if root is call.root:
                modes.setdefault("random_in_eval", self.observer.drawn and not call.training)
        while self._activations:
            sampler = self._activations.pop()
            self.run("activations", sampler.__exit__, None, None, None)
            self._layers.extend(self.run("activations", getattr, sampler, "layers") or [])
            self.budget.pay("activations", sampler.seconds, self.tick - self.base)

    def loss_called(self, kind: str, args: Sequence[Any], kwargs: dict[str, Any], value: Tensor) -> None:
        """Measure what enters a known loss."""
        if not self.begun:
            self.begin()
        if "loss_call" in self.plan and len(self._calls) < _MOST_CALLS:
            fields = self.run("loss_call", "describe_loss_call", kind, tuple(args), kwargs, value)
            if fields is not None:
                self._calls.append({**fields, "where": self.observer.place("loss")})
        target = kwargs.get("target", args[1] if len(args) > 1 else None)
        if not isinstance(target, Tensor):
            return
        if self._batch is not None and self._batch["target"] is None:
            self._batch["target"] = self.run("batch", "describe_target", target)
        if self._hashes is not None and self._hashes["target_hashes"] is None:
            hashes = self.hash_rows([target])
            if hashes is not None and len(hashes) == len(self._hashes["hashes"]):
                self._hashes["target_hashes"] = hashes

    def backward_began(self, tensors: Any) -> None:
        """Measure the graph before it is freed."""
        if not self.begun:
            self.begin()
        if not isinstance(tensors, Tensor):
            return
        history = self._followed()
        if "graph" in self.plan:
            self._graph = self.run("graph", "describe_graph", tensors)
            if history is not None and self._graph is not None:
                self._graph |= self.run("graph", history.describe, tensors, self.tick) or {}
                self._look_for_keepers(history, self._graph)
            found = self.run("graph", "leaves", tensors) or ()
            self._reached = [weakref.ref(leaf) for leaf in found if isinstance(leaf, torch.nn.Parameter)]
        if history is not None:
            self._kept = self.run("graph", history.grown, self.tick)
            self._look_for_keepers(history, self._kept or {})
            self.run("graph", history.began, tensors, self.tick)

    def write_unfinished(self, tracks: Sequence[Track]) -> None:
        """Write the graph of a backward call that never ended, as one that goes into a freed graph does not."""
        track = next((each for each in reversed(tracks) if each.headed), None)
        if track is not None and self.plan and (self._graph or {}).get("reach"):
            self.write(track, Sample("backward_graph", {"fields": {**(self._graph or {}), "raised": True}}), track.count)

    def _followed(self) -> Any:
        if self._history is None:
            make = self.function("History")
            self._history = make() if make is not None else None
        return self._history

    def mark(self, result: Any, what: str = "output") -> None:
        """Mark a graph, to know later whether it is still alive."""
        history = self._followed()
        if history is not None and result is not None:
            self.run("graph", history.mark, result, self.tick, what)

    def _look_for_keepers(self, history: Any, fields: dict[str, Any]) -> None:
        """Find out once which names of the script hold what should be gone."""
        if self._looked_for_keepers or max(fields.get("kept", 0), fields.get("reach", 0)) < KEPT:
            return
        self._looked_for_keepers = True
        self.observer.fact(None, "keepers", self.run("graph", "keepers", history.before(self.tick)) or [])

    def watch_slowly(self, now: float, tracks: Sequence[Track]) -> None:
        """Follow what grows in the course of a run, by the clock: memory, and graphs that are kept; twice a second, later more rarely."""
        track = max((each for each in tracks if each.headed), key=lambda each: each.stepped, default=None)
        if track is None or now < self._slow_at:
            return
        self._slow_at = now + max(SLOW_SECONDS, (now - self.observer.began) / DENSITY)
        resident = self.run("memory", "resident_memory")
        if resident is not None and track.count:
            self.write(track, Sample("memory", {"value": resident}), track.count - 1)
        kept = self.run("graph", self._history.grown, self.tick) if self._history is not None else None
        if kept is not None:
            self._look_for_keepers(self._history, kept)
            self.write(track, Sample("kept_graphs", {"fields": kept}), max(0, track.count - 1))

    def backward_ended(self, value: Any) -> list[Sample]:
        """Return what was measured of a backward and the forwards before it."""
        self.plan = set()
        found = [Sample("loss_call", {"fields": {**call, "ratio": _ratio(value, call.get("value"))}}) for call in self._calls]
        for signal, fields in (
            ("batch", self._batch),
            ("row_hashes", self._hashes),
            ("backward_graph", self._graph),
            ("kept_graphs", self._kept),
        ):
            if fields is not None:
                found.append(Sample(signal, {"fields": fields}))
        if self._layers:
            found.append(Sample("activations", {"fields": {"layers": self._layers}}))
        if self._modes:
            found.append(Sample("modes", {"fields": _join_modes([modes for _, modes in self._modes])}))
        self._forget()
        return found

    def hash_rows(self, values: Sequence[Any], limit: int | None = None, payer: str = "hashes") -> list[str] | None:
        """Return one hash per row of the tensors that share the first one's rows."""
        tensors = [value for value in values if isinstance(value, Tensor) and value.dim()]
        tensors = [tensor[:limit] for tensor in tensors if len(tensor) == len(tensors[0])]
        found = self.run(payer, "row_hashes", tensors) if tensors else None
        return None if found is None else [each if isinstance(each, str) else f"{int(each) & (2**64 - 1):016x}" for each in found]

    def _remember(self, hashes: Sequence[str]) -> None:
        if len(self.trained_rows) < _SEEN_ROWS:
            self.trained_rows.update(hashes)

    # -- a step ----------------------------------------------------------------------------------------------------------

    def step_before(self, track: Track, step: int, parameters: list[Tensor]) -> None:
        """Measure gradients and take the weights, right before they move."""
        if track.planned == step or not parameters:
            return
        track.planned = step
        track.plan = track.schedule.plan(step) - self.broken
        if "gradient" in track.plan:
            self._write_gradients(track, step, parameters)
        if "zero_rows" in track.plan:
            names = track.names
            shares = self.run("zero_rows", "zero_rows", parameters, names, [names[place] for place in track.embeddings()])
            self.write_packed(track, step, "zero_rows", shares)
        if "update" in track.plan:
            if track.sampler is None:
                make = self.function("UpdateSampler")
                track.sampler = self.run("update", lambda: make and make(parameters, embeddings=track.embeddings()))
            if track.sampler is not None:
                self.run("update", track.sampler.before)

    def _write_gradients(self, track: Track, step: int, parameters: list[Tensor]) -> None:
        norms = self.run("gradient", "gradient_norms", parameters)
        if norms is None:
            return
        self.write_packed(track, step, "grad_norms", norms)
        present = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        if present:
            whole = torch.linalg.vector_norm(norms if len(present) == len(parameters) else norms[present])
            self._defer(track, {"kind": "sample", "track": track.number, "step": step, "signal": "grad_norm"}, whole)

    def step_ended(self, track: Track, step: int, parameters: list[Tensor]) -> None:
        """Measure what the step has moved."""
        plan, track.plan = track.plan, set()
        changed = None
        if "update" in plan and track.sampler is not None:
            changed = self.run("update", track.sampler.ratios)
            self.write_packed(track, step, "update_ratios", changed)
            self.write_packed(track, step, "displacements", self.run("update", track.sampler.displacements))
        if "weights" in plan:
            self.write_packed(track, step, "weight_norms", self.run("weights", "weight_norms", parameters))
        if "coverage" in plan:
            self._write_coverage(track, step, parameters, changed)
        if "memory" in plan:
            resident = self.run("memory", "resident_memory")
            if resident is not None:
                self.write(track, Sample("memory", {"value": resident}), step)
            for signal, value in zip(("cpu_seconds", "queued_seconds"), self.run("memory", "thread_times") or (), strict=False):
                if value == value:
                    self.write(track, Sample(signal, {"value": value}), step)

    def _write_coverage(self, track: Track, step: int, parameters: list[Tensor], changed: Tensor | None) -> None:
        models = [root.ref() for root in track.models]
        alive = [model for model in models if model is not None]
        model = None if not alive else alive[0] if len(alive) == 1 else torch.nn.ModuleList(alive)
        reached = None if self._reached is None else [leaf for leaf in (reference() for reference in self._reached) if leaf is not None]
        fields = self.run("coverage", "describe_coverage", model, self.observer.optimizers.held(parameters), reached)
        if fields is None:
            return
        known = None if changed is None else changed[~changed.isnan()]
        share = None if known is None or not len(known) else float((known > 0).float().mean())
        self.write(track, Sample("coverage", {"fields": {**fields, "changed": share}}), step)

    def write(self, track: Track, sample: Sample, step: int) -> None:
        """Add a sample to the record."""
        self.observer.add_line(track, {"kind": "sample", "track": track.number, "step": step, "signal": sample.signal, **sample.content})

    def write_packed(self, track: Track, step: int, signal: str, values: Tensor | None) -> None:
        """Add one value per parameter to the record; read from the device at the next flush."""
        if values is not None and len(values):
            self._defer(track, {"kind": "sample", "track": track.number, "step": step, "signal": signal}, values)

    def _defer(self, track: Track, line: dict[str, Any], values: Tensor) -> None:
        self.observer.add_line(track, line)
        self.deferred.append((line, values))

    def resolve(self) -> None:
        """Read what still lies on a device into the lines that wait for it."""
        deferred, self.deferred = self.deferred, []
        for line, values in deferred:
            if values.dim():
                line["packed"] = _packed(values)
            else:
                line["value"] = float(values)

    def reached(self, tensors: Any, roots: Sequence[Root]) -> list[Tensor]:
        """Return the leaves of a loss that take a gradient; the models' parameters where the graph cannot be walked."""
        loss = tensors if isinstance(tensors, Tensor) else next((each for each in tensors if isinstance(each, Tensor)), None)
        found = self.run("graph", "leaves", loss) if loss is not None else None
        if found is None:
            modules = [root.ref() for root in roots]
            found = [parameter for module in modules if module is not None for parameter in module.parameters()]
        return [parameter for parameter in dict.fromkeys(found) if parameter.requires_grad]

    # -- the track as a whole --------------------------------------------------------------------------------------------

    def track_began(self, track: Track) -> None:
        """Write what the track's model is."""
        module = track.root.ref() if track.root is not None else None
        if module is not None:
            self.observer.fact(track, "model", model_fact(module))
        self.observer.fact(track, "threads", torch.get_num_threads())

    # -- how a probe is run --------------------------------------------------------------------------------------------------

    def run(self, probe: str, function: str | Callable[..., Any], *args: Any) -> Any:
        """Run a part of a probe, timed, with the seams deaf; None where the probe is absent, broken, or raises."""
        called = self.function(function) if isinstance(function, str) else function
        if called is None or probe in self.broken:
            return None
        observer = self.observer
        depth, in_loss, drawn = observer.depth, observer.in_loss, observer.drawn
        observer.depth, observer.in_loss = 2, True
        began = self.budget.clock()
        try:
            return called(*args)
        except Exception as error:
            self.broken.add(probe)
            observer.recorder.note(f"broke: {probe}: {type(error).__name__}: {error}")
            return None
        finally:
            self.budget.pay(probe, self.budget.clock() - began, self.tick - self.base)
            observer.depth, observer.in_loss, observer.drawn = depth, in_loss, drawn

    def function(self, name: str) -> Callable[..., Any] | None:
        """Import a probe's function at its first use."""
        if name not in self._functions:
            try:
                module = importlib.import_module(f"lossdoctor.record.probes.{_PROBES[name]}")
                self._functions[name] = getattr(module, name)
            except (ImportError, AttributeError) as error:
                self._functions[name] = None
                self.observer.recorder.note(f"broke: {name}: {type(error).__name__}: {error}")
        return self._functions[name]


def _packed(values: Tensor) -> str:
    import base64

    return base64.b64encode(values.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()).decode()


def _ratio(value: Any, call: Any) -> float | None:
    if not isinstance(value, float) or not isinstance(call, (int, float)) or not call or not math.isfinite(call):
        return None
    return value / call


def _join_modes(modes: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the modes of the models that one backward went through; the first model's flag stands for all."""
    joined = dict(modes[0])
    for other in modes[1:]:
        for name, value in other.items():
            if isinstance(value, bool):
                joined[name] = joined.get(name, False) or value if name != "root_training" else joined[name]
            elif isinstance(value, int):
                joined[name] = joined.get(name, 0) + value
            elif isinstance(value, list):
                joined[name] = [*joined.get(name, []), *value]
            elif isinstance(value, dict):
                joined[name] = {**joined.get(name, {}), **value}
    return joined
