"""The fix as an edit of the source."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.errors import LossdoctorError
from lossdoctor.core.fault import faults
from lossdoctor.core.run import Location, Series, Training
from lossdoctor.trials.confirm import Candidate
from lossdoctor.trials.edits import Source, diff, edited
from lossdoctor.trials.fix import Fix, add, write

LOOP = """\
import torch
from torch import nn

RATE = 0.5
model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))
opt = torch.optim.SGD(model.parameters(), lr=RATE)
for x, y in data:
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
model.eval()
"""
PLACES = {"forward": ["train.py", 8], "backward": ["train.py", 9], "step": ["train.py", 11]}


def training(**facts: Any) -> Training:
    return Training(signals={"lr": Series.of([0.5])}, facts={"where": PLACES, "optimizer": {"name": "SGD"}, **facts})


def change(name: str, text: str = LOOP, where: Location | None = None, run: Training | None = None, **parameters: Any) -> list[str] | None:
    """Return the lines that an edit takes away and adds."""
    source = Source("train.py", text)
    made = edited(source, {"name": name, "parameters": parameters}, run or training(), where)
    if made is None:
        return None
    ast.parse(made)
    return [line for line in diff(source, made).splitlines()[2:] if line[0] in "+-"]


def test_zero_grad_goes_after_the_step() -> None:
    assert change("clear_gradients") == ["+    opt.zero_grad()"]


def test_a_step_goes_after_the_clipping() -> None:
    without = LOOP.replace("    opt.step()\n", "    opt.zero_grad()\n")
    assert change("step_after_backward", without, idle=True) == ["+    opt.step()"]
    made = edited(Source("train.py", without), {"name": "step_after_backward", "parameters": {"idle": True}}, training(), None)
    assert made is not None
    assert made.index("clip_grad_norm_") < made.index("opt.step()") < made.index("opt.zero_grad()")


def test_a_step_that_is_there_is_not_doubled() -> None:
    assert change("step_after_backward", idle=True) is None


def test_the_rate_is_changed_where_it_is_written() -> None:
    assert change("scale_rate", factor=0.01) == ["-RATE = 0.5", "+RATE = 0.005"]
    direct = LOOP.replace("lr=RATE", "lr=5e-1")
    assert change("scale_rate", direct, factor=0.01)[1].endswith("lr=0.005)")  # type: ignore[index]


def test_a_rate_from_elsewhere_is_left_alone() -> None:
    assert change("scale_rate", LOOP.replace("lr=RATE", "lr=args.lr"), factor=0.01) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nn.Softmax(dim=1)", "nn.Identity()"),
        ("torch.softmax(x, 1)", "x"),
        ("self.head(x).softmax(dim=-1)", "self.head(x)"),
        ("F.softmax(self.head(x), dim=1)", "self.head(x)"),
    ],
)
def test_softmax_is_taken_out(before: str, after: str) -> None:
    assert change("pass_logits", f"def forward(x):\n    return {before}\n") == [f"-    return {before}", f"+    return {after}"]


def test_one_of_several_softmaxes_is_not_guessed() -> None:
    assert change("pass_logits", "a = torch.softmax(b, 1)\nc = torch.softmax(d, 1)\n") is None


def test_the_model_takes_the_shape_of_the_target() -> None:
    found = change("same_shape")
    assert found is not None
    assert found[1] == "+    loss = nn.functional.mse_loss(model(x).reshape(y.shape), y)"
    by_hand = change("same_shape", "loss = ((prediction - target) ** 2).mean()\n", Location("train.py", 1))
    assert by_hand is not None
    assert by_hand[1] == "+loss = ((prediction.reshape(target.shape) - target) ** 2).mean()"


def test_train_goes_before_the_forward() -> None:
    assert change("train_mode") == ["+    model.train()"]


def test_what_cannot_be_edited_plainly_is_not() -> None:
    assert change("reinitialise") is None
    assert change("clear_gradients", run=Training()) is None
    assert change("clear_gradients", "this is no python\n") is None


def candidate(slug: str, name: str, **parameters: Any) -> Candidate:
    fault = faults()[slug]
    return Candidate(Finding(fault.code, slug, fault.title, fault.family), fault, {"name": name, "parameters": parameters})


def fixed(tmp_path: Path) -> tuple[Fix, Path]:
    """A fix of two faults in one file."""
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    run = training(where={name: [str(file), line] for name, (_, line) in PLACES.items()})
    fix = Fix()
    add(fix, candidate("zero-grad-missing", "clear_gradients"), run)
    add(fix, candidate("eval-mode-in-training", "train_mode"), run)
    add(fix, candidate("dead-units", "reinitialise"), run)
    return fix, file


def test_edits_of_several_faults_are_put_together(tmp_path: Path) -> None:
    fix, _ = fixed(tmp_path)
    added = [line for line in fix.diff.splitlines() if line.startswith("+ ")]
    assert added == ["+    model.train()", "+    opt.zero_grad()"]
    assert (fix.slugs, fix.without) == (["zero-grad-missing", "eval-mode-in-training"], ["dead-units"])


def test_a_fix_is_written_beside_a_copy(tmp_path: Path) -> None:
    fix, file = fixed(tmp_path)
    (copy,) = write(fix)
    assert copy.read_text() == LOOP
    assert file.read_text() == fix.texts[str(file)]


def test_a_file_that_has_changed_is_left_alone(tmp_path: Path) -> None:
    fix, file = fixed(tmp_path)
    file.write_text("changed")
    with pytest.raises(LossdoctorError, match="has changed since"):
        write(fix)
    assert file.read_text() == "changed"
    assert list(tmp_path.iterdir()) == [file]
