"""Watch a loop from inside its process: in a script of one's own, or over the cells of a notebook."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossdoctor.core.config import Settings, load_settings, parse_budget
from lossdoctor.core.errors import LossdoctorError, UsageError
from lossdoctor.core.run import Run
from lossdoctor.session import Choice, diagnose_run
from lossdoctor.shown import Report

if TYPE_CHECKING:
    from types import TracebackType

    from lossdoctor.record import Recorder

_watching: list[Doctor] = []  # at most one: what is patched twice cannot be undone in any order


def watch(model: Any = None, optimizer: Any = None, *, out: str | Path | None = None, budget: str | float | None = None) -> Doctor:
    """Watch the training in a `with` block, or from `start()` to `stop()`.

    Args:
        model: the module that is trained; found by itself where left out.
        optimizer: the optimiser, or a list of them; found by itself where left out.
        out: folder of the runs; `.lossdoctor`, or what pyproject.toml says, where left out.
        budget: share of a step's time that measuring may take, such as `"1%"`.

    Raises:
        UsageError: where an argument is of the wrong kind.

    Example:
        >>> import torch
        >>> net = torch.nn.Linear(2, 1)
        >>> descent = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> import tempfile
        >>> with watch(net, descent, out=tempfile.mkdtemp()) as doctor:
        ...     for _ in range(3):
        ...         net(torch.ones(4, 2)).mean().backward()
        ...         descent.step()
        >>> doctor.diagnosis.vitals["steps"]
        3
    """
    settings = load_settings(Path.cwd())
    try:
        share = settings.budget if budget is None else parse_budget(budget)
    except ValueError as error:
        raise UsageError(f"watch(budget={budget!r}): {error}") from None
    if model is not None and not hasattr(model, "named_parameters"):
        raise UsageError(f"watch(model=...): expected a torch.nn.Module, got {type(model).__name__}")
    return Doctor(_optimizers(optimizer), Path(out) if out is not None else settings.out, share, settings)


class Doctor:
    """Watch from `start` to `stop` and hold the diagnosis; `watch` makes it.

    Args:
        optimizers: those that were made before the watch begins.
        out: folder of the runs.
        budget: share of a step's time that measuring may take.
        settings: which faults to look for.
    """

    def __init__(self, optimizers: list[Any], out: Path, budget: float, settings: Settings) -> None:
        self._optimizers = optimizers
        self._out = out.absolute()
        self._budget = budget
        self._choice = Choice(settings.select, settings.ignore, settings.workup)
        self._recorder: Recorder | None = None
        self._shared = False
        self._report: Report | None = None

    def start(self) -> Doctor:
        """Begin to watch.

        Raises:
            LossdoctorError: where PyTorch is not installed, or the process is watched already.
        """
        if "torch" not in sys.modules and find_spec("torch") is None:
            raise LossdoctorError("watch() looks into PyTorch, and that is not installed: pip install torch")
        if _watching:
            raise UsageError("this process is watched already; stop the first watch() before the next one starts")
        self._report = None
        self._recorder = self._shared_recorder() or self._own_recorder()
        _watching.append(self)
        return self

    def stop(self) -> None:
        """End to watch, and diagnose what was seen; nothing where the watch has ended already."""
        self._stop(None)

    @property
    def folder(self) -> Path | None:
        """Where the run is kept; None before the first step."""
        return self._recorder.folder if self._recorder is not None else None

    @property
    def diagnosis(self) -> Report:
        """The diagnosis: of the whole watch once it has ended, of what was seen until half a second ago before that.

        Raises:
            UsageError: where the watch has not begun.
        """
        if self._recorder is None:
            raise UsageError("nothing was watched yet: use `with lossdoctor.watch() as doctor:`, or start()")
        if self in _watching:
            self._recorder.flush()
            return self._diagnose()
        if self._report is None:
            self._report = self._diagnose()
        return self._report

    def __enter__(self) -> Doctor:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop(error)
        if error is not None and self._report is not None and self.folder is not None:
            from lossdoctor.report.view import headline

            # What follows the block is not reached, so the diagnosis would go unseen.
            print(f"lossdoctor: {headline(self._report)}; all of it: lossdoctor report {self.folder}", file=sys.stderr)

    def _stop(self, error: BaseException | None) -> None:
        if self not in _watching or self._recorder is None:
            return
        _watching.remove(self)
        if self._shared:
            self._recorder.flush()
        else:
            self._recorder.stop("returned" if error is None else "exception", exception=type(error).__name__ if error else None)
        try:
            self._report = self._diagnose()
        except Exception:
            self._report = None  # an error of ours must not hide the user's; `diagnosis` meets it again and tells it

    def _diagnose(self) -> Report:
        from lossdoctor.core.store import load_run

        folder = self.folder
        run = load_run(folder) if folder is not None else Run(facts={"script": _script()})
        return Report.of(diagnose_run(run, None if self._shared else folder, self._choice))

    def _own_recorder(self) -> Recorder:
        from lossdoctor.record import arm

        recorder = arm(self._out, script=_script(), budget=self._budget)
        recorder.adopt(*self._optimizers)
        return recorder

    def _shared_recorder(self) -> Recorder | None:
        """Return the recorder of `lossdoctor run`, where that started this script: it sees all that we would."""
        launcher = sys.modules.get("lossdoctor.launch.script")
        recorder: Recorder | None = getattr(launcher, "recorder", None)
        self._shared = recorder is not None
        return recorder


def _optimizers(given: Any) -> list[Any]:
    many = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    for each in many:
        if not hasattr(each, "param_groups"):
            raise UsageError(f"watch(optimizer=...): expected a torch.optim.Optimizer or a list of them, got {type(each).__name__}")
    return many


def _script() -> str:
    return "notebook" if "ipykernel" in sys.modules else sys.argv[0] or "python"
