"""What every fault file must keep to, checked over the whole folder. A new fault gets these tests by being there."""

from __future__ import annotations

import ast
import csv
import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lossdoctor.core
import lossdoctor.experiments
from lossdoctor.core.errors import SignalMissing
from lossdoctor.core.fault import HEADINGS, Detection, Example, Fault, faults, sections
from lossdoctor.core.run import Row, Run, Series, Training
from lossdoctor.core.signals import SIGNALS
from lossdoctor.diagnose import diagnose

# A sick example must be unmistakable, all others must stay below what could be called present.
PRESENT = 0.8
PARTS = ("signals", "rows", "facts", "experiments")
# Experiments that have their name and not yet their file.
PLANNED_EXPERIMENTS = {"first_loss", "memorise", "baseline", "standardise", "rate", "unseen", "widen"}

with (Path(lossdoctor.core.__path__[0]) / "catalogue.tsv").open() as stream:
    CATALOGUE = {row["slug"]: row for row in csv.DictReader(stream, delimiter="\t")}
EXPERIMENTS = PLANNED_EXPERIMENTS | {module.name for module in pkgutil.iter_modules(lossdoctor.experiments.__path__)}
FAULTS = list(faults().values())
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.slug)
every_example = pytest.mark.parametrize(
    ("fault", "example"), [pytest.param(f, e, id=f"{f.slug}: {e.note}") for f in FAULTS for e in f.examples]
)


def module_of(fault: Fault) -> Any:
    return importlib.import_module(fault.detect.__module__)


def judged(fault: Fault, training: Training) -> Detection | None:
    """Ask the rule; a missing signal is an answer, any other exception fails the test."""
    try:
        return fault.detect(training)
    except SignalMissing:
        return None


def strength(fault: Fault, training: Training) -> float:
    found = judged(fault, training)
    return found.strength if found else 0.0


@every_fault
def test_page_has_every_heading_with_text(fault: Fault) -> None:
    found = sections(module_of(fault).__doc__ or "")
    assert tuple(found) == HEADINGS
    assert all(len(text) > 20 for text in found.values())


@every_fault
def test_file_folder_and_code_agree(fault: Fault) -> None:
    path = Path(inspect.getfile(module_of(fault)))
    assert path.stem == fault.slug.replace("-", "_")
    assert path.parent.name == fault.code[:3].lower() == fault.family.lower()


@every_fault
def test_code_slug_and_severity_stand_in_the_catalogue(fault: Fault) -> None:
    row = CATALOGUE[fault.slug]
    assert (fault.code, fault.severity) == (row["code"], row["severity"])


def test_codes_are_unique() -> None:
    assert len({fault.code for fault in FAULTS}) == len(FAULTS)


@every_fault
def test_names_that_it_refers_to_exist(fault: Fault) -> None:
    assert set(fault.explains) <= set(CATALOGUE) - {fault.slug}
    assert set(fault.decides_with) <= EXPERIMENTS
    assert set(fault.needs) <= set(SIGNALS) | EXPERIMENTS
    assert fault.fix
    assert fault.bigger_machine.helps in ("no", "yes", "speed-only")


@every_fault
def test_examples_are_enough_and_differ(fault: Fault) -> None:
    kinds = [example.kind for example in fault.examples]
    assert min(kinds.count(kind) for kind in ("sick", "healthy", "look-alike")) >= 2
    assert len({example.note for example in fault.examples}) == len(fault.examples)


@every_example
def test_example_gets_its_answer(fault: Fault, example: Example) -> None:
    found = strength(fault, example.training)
    assert found <= 1.0
    assert (found >= PRESENT) == (example.kind == "sick")


@every_example
def test_evidence_is_complete(fault: Fault, example: Example) -> None:
    found = judged(fault, example.training)
    for item in found.evidence if found else ():
        assert item.signal in SIGNALS or item.signal in EXPERIMENTS
        assert item.steps[0] <= item.steps[1]
        assert item.seen == item.seen, "a number that was seen is never NaN; say so in words"
        assert str(item.seen)
        assert str(item.expected)
    assert found is None or found.evidence


@every_example
def test_detect_leaves_the_training_alone(fault: Fault, example: Example) -> None:
    before = repr(example.training)
    judged(fault, example.training)
    assert repr(example.training) == before


@every_example
def test_damaged_records_do_not_raise(fault: Fault, example: Example) -> None:
    for damaged in damages(example.training):
        found = judged(fault, damaged)
        assert found is None or 0.0 <= found.strength <= 1.0


@every_fault
def test_each_missing_need_gives_unknown(fault: Fault) -> None:
    sick = next(example.training for example in fault.examples if example.kind == "sick")
    for need in fault.needs:
        finding = diagnose(Run(trainings=[without(sick, need)]), select=(fault.slug,)).finding(fault.slug)
        assert finding is not None
        assert finding.status == "unknown"
        assert need in finding.missing


@every_fault
def test_detect_and_plant_share_no_number(fault: Fault) -> None:
    texts = [text for plant in fault.plants for text in (plant.new, *(new for _, _, new in plant.also))]
    planted = {float(number) for text in texts for number in re.findall(r"\d+\.?\d*(?:e-?\d+)?", text)}
    trivial = {0.0, 1.0, 2.0}
    assert not (planted - trivial) & rule_numbers(fault)


def test_faults_load_without_a_framework() -> None:
    heavy = ("torch", "pandas", "plotly", "sklearn")
    code = f"import sys; from lossdoctor.core.fault import faults; faults(); print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def rule_numbers(fault: Fault) -> set[float]:
    """Collect the numbers of the module outside the `FAULT` value and the helpers that only build examples."""
    tree = ast.parse(inspect.getsource(module_of(fault)))
    used = ast.dump(next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == fault.detect.__name__))
    found: set[float] = set()
    for node in tree.body:
        is_fault = isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "FAULT" for target in node.targets)
        builds = isinstance(node, ast.FunctionDef) and "Training" in ast.dump(node.returns or ast.Constant(None)) and node.name not in used
        if not (is_fault or builds):
            numbers = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            found |= {float(value) for value in numbers if isinstance(value, int | float) and not isinstance(value, bool)}
    return found


def without(training: Training, name: str) -> Training:
    """Copy a training without one signal, row, fact or experiment."""
    return dataclasses.replace(training, **{part: {k: v for k, v in getattr(training, part).items() if k != name} for part in PARTS})


def damages(training: Training) -> Iterator[Training]:
    """Yield what a crash, a kill or a failed probe may leave of a training."""
    yield Training()
    yield with_numbers(training, math.nan)
    yield with_numbers(training, math.inf)
    yield dataclasses.replace(training, signals={name: Series.of([]) for name in training.signals})
    for stop in (0, 1, 2, 3):
        yield cut(training, stop)
    for part in PARTS:
        for name in getattr(training, part):
            yield without(training, name)
    for name, rows in training.rows.items():
        for field in rows[0].fields if rows else ():
            bare = [Row(row.step, {key: value for key, value in row.fields.items() if key != field}) for row in rows]
            yield dataclasses.replace(training, rows=training.rows | {name: bare})
            empty = [Row(row.step, {**row.fields, field: None}) for row in rows]
            yield dataclasses.replace(training, rows=training.rows | {name: empty})


def cut(training: Training, stop: int) -> Training:
    return dataclasses.replace(
        training,
        signals={name: series.between(0, stop) for name, series in training.signals.items()},
        rows={name: [row for row in rows if row.step < stop] for name, rows in training.rows.items()},
    )


def with_numbers(training: Training, number: float) -> Training:
    signals = {name: Series(series.steps, np.full_like(series.values, number), series.names) for name, series in training.signals.items()}
    rows = {name: [Row(row.step, replaced(dict(row.fields), number)) for row in rows] for name, rows in training.rows.items()}
    return dataclasses.replace(training, signals=signals, rows=rows)


def replaced(value: Any, number: float) -> Any:
    if isinstance(value, float):
        return number
    if isinstance(value, dict):
        return {key: replaced(item, number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(replaced(item, number) for item in value)
    return value
