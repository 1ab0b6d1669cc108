"""End a repeated script once it was seen for long enough, after doing experiments on what was captured of it.

Interpreted in the child's process, like `trials.treatments` (`launch.child.repeat` names the module).
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from lossdoctor.launch import script


def apply(treatments: Sequence[Mapping[str, Any]], finish: Callable[[], object]) -> None:
    """Apply the one treatment there is: `see`, with its parameters."""
    for treatment in treatments:
        see(**treatment["parameters"])


def see(
    seconds: float, experiments: Sequence[tuple[str, float]], answers: str, plan: str, extra: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """End this process after a step at which its time is over; where the script ends before, do the experiments then.

    Args:
        seconds: of training, from its first step on.
        experiments: name and time limit of each.
        answers: module whose `Workup` does experiments; by name, since this part does not know them.
        plan: module whose `parameters` says what they need of the run.
        extra: further parameters of theirs.
    """
    process, began = os.getpid(), list[float]()
    left = list(experiments)

    def at_end() -> None:
        if os.getpid() == process and left:
            asked, left[:] = list(left), []
            _do(asked, answers, plan, extra)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not began:
            began.append(time.monotonic())
        if time.monotonic() > began[0] + seconds and left:
            at_end()
            os._exit(0)

    register_optimizer_step_post_hook(after)
    atexit.register(at_end)


def _do(experiments: Sequence[tuple[str, float]], answers: str, plan: str, extra: Mapping[str, Any]) -> None:
    """Close the record, do experiments, and add what they found to the run's folder."""
    from lossdoctor.core.store import load_run

    recorder = script.recorder
    if recorder is None:
        return
    recorder.stop()
    folder = recorder.folder
    if folder is None:
        return
    workup = importlib.import_module(answers).Workup(recorder.captures, folder)
    trainings = load_run(folder).trainings
    needed = importlib.import_module(plan).parameters(trainings[0]) if trainings else {}
    needed = {**needed, **extra}
    for name, seconds in experiments:
        answer = workup.answer({"experiment": name, "seconds": seconds, "parameters": needed})
        with (folder / "record-workup-0000.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(answer) + "\n")
