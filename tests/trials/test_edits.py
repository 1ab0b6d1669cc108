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
from lossdoctor.trials.edits import edited
from lossdoctor.trials.fix import Fix, add, write
from lossdoctor.trials.source import Source, diff

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


OPTIONS = "parser.add_argument('--learning-rate', '-r', dest='lr', type=float, default=0.5)\nargs = parser.parse_args()\n"
ELSEWHERE = {
    "by position": ("SGD(p, 0.5)", "SGD(p, 0.005)"),
    "default of an option": (OPTIONS + "SGD(p, lr=args.lr)", OPTIONS.replace("0.5", "0.005") + "SGD(p, lr=args.lr)"),
    "option of that name": ("a('x')\nq.add_argument('--lr', default=0.5)\nSGD(p, lr=q.parse_args().lr)", "default=0.005"),
    "default of a function": ("def train(model, lr=0.5):\n    SGD(p, lr=lr)\ntrain(m)", "def train(model, lr=0.005)"),
    "given to a function": ("def train(model, lr=9):\n    SGD(p, lr=lr)\ntrain(m, lr=0.5)", "train(m, lr=0.005)"),
    "given to an object by place": ("class T:\n    def __init__(self, m, lr):\n        self.o = SGD(p, lr=lr)\nT(m, 0.5)", "T(m, 0.005)"),
    "kept by an object": (
        "class T:\n    def __init__(self, m, lr=0.5):\n        self.lr = lr\n    def fit(self):\n        SGD(p, self.lr)",
        "lr=0.005",
    ),
    "field of a class": ("class C:\n    lr: float = 0.5\nc = C()\nSGD(p, lr=c.lr)", "lr: float = 0.005"),
    "item of a dictionary": ("c = {'lr': 0.5, 'n': 3}\nSGD(p, lr=c['lr'])", "c = {'lr': 0.005, 'n': 3}"),
}


@pytest.mark.parametrize(("text", "after"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_the_rate_is_changed_where_it_comes_from(text: str, after: str) -> None:
    made = edited(Source("train.py", text), {"name": "scale_rate", "parameters": {"factor": 0.01}}, training(), None)
    assert made is not None
    assert after in made
    assert made.count("0.005") == 1
    assert "0.5" not in made


@pytest.mark.parametrize(
    "text",
    [
        "SGD(p, lr=args.lr)",
        "SGD(p, lr=0.25)",  # not the rate that the run had
        OPTIONS.replace("0.5", "0.1") + "SGD(p, lr=args.lr)",  # the command line gave another
        "RATE = 0.5\nRATE = 0.5\nSGD(p, lr=RATE)",
        "SGD(p, lr=0.5 * world)",
        "def train(lr):\n    SGD(p, lr=lr)\ntrain(0.5)\ntrain(0.5)",
        "lr = lr\nSGD(p, lr=lr)",
    ],
)
def test_a_rate_that_is_worked_out_or_comes_from_several_places_is_left_alone(text: str) -> None:
    assert change("scale_rate", text, factor=0.01) is None


FUNCTION = """\
import torch

def validate(model, data):
    model.eval()
    for x, y in data:
        total += loss(model(x), y)
    return total

"""
INLINE = """\
import torch
for epoch in range(3):
    for x, y in data:
        loss.backward()
    model.eval()
    for x, y in held_out:
        out = model(x)

        right += (out == y).sum()
    model.train()
    print(right)
"""


def test_no_grad_decorates_a_function_that_validates() -> None:
    assert change("no_grad_in_validation", FUNCTION) == ["+@torch.no_grad()"]
    method = "import torch\nclass T:\n    @staticmethod\n    def validate(model):\n        model.eval()\n        return model(x)\n"
    assert change("no_grad_in_validation", method) == ["+    @torch.no_grad()"]


def test_no_grad_goes_around_validation_within_the_loop() -> None:
    made = edited(Source("train.py", INLINE), {"name": "no_grad_in_validation", "parameters": {}}, training(), None)
    assert made is not None
    assert made.splitlines()[4:11] == [
        "    model.eval()",
        "    with torch.no_grad():",
        "        for x, y in held_out:",
        "            out = model(x)",
        "",
        "            right += (out == y).sum()",
        "    model.train()",
    ]


@pytest.mark.parametrize(
    "text",
    [
        FUNCTION.replace("import torch\n", "import numpy\n"),
        FUNCTION + FUNCTION,
        FUNCTION.replace("    for x", "    loss.backward()\n    for x"),
        INLINE.replace("    for x, y in held_out:", "    with torch.no_grad():"),
        INLINE.replace("        out = model(x)", '        out = model(x, """a\n  b""")'),
        INLINE.replace("    model.eval()\n", "    model.eval(); a = 1\n").replace("model.train()", "pass")[:60],
    ],
)
def test_no_grad_where_it_is_not_plain_is_left_alone(text: str) -> None:
    assert change("no_grad_in_validation", text) is None


def test_losses_are_kept_as_numbers() -> None:
    text = """\
for x, y in data:
    loss = criterion(model(x), y)
    error = (out - y).abs().mean()
    spread = out.std(0)
    (loss / 4).backward()
    total += loss * len(x)
    errors += error
    running = running + loss
    kept.append(loss)
    outputs.append(out)
    step += 1
    if step % 10 == 0:
        history.append(loss)
        widths.append(spread)
"""
    run = training(where={"backward": ["train.py", 5]})
    found = change("detach_losses", text, run=run)
    assert found is not None
    assert [line[1:].strip() for line in found if line[0] == "+"] == [
        "total += loss.item() * len(x)",
        "errors += error.item()",
        "running = running + loss.item()",
        "kept.append(loss.item())",
        "history.append(loss.item())",
    ]
    assert change("detach_losses", text.replace("loss", "loss.item()").replace("(loss.item() / 4)", "loss"), run=run) is None


def test_calls_get_the_argument_that_a_treatment_gives() -> None:
    assert change("batch_first", "r = nn.LSTM(8, 16, 2)\n") == ["-r = nn.LSTM(8, 16, 2)", "+r = nn.LSTM(8, 16, 2, batch_first=True)"]
    assert change("batch_first", "r = nn.GRU(8, 16, batch_first=True)\n") == [
        "-r = nn.GRU(8, 16, batch_first=True)",
        "+r = nn.GRU(8, 16, batch_first=False)",
    ]
    assert change("batch_first", "a, b = nn.LSTM(8, 16), nn.LSTM(8, 16)\n") is None
    loaders = "train = DataLoader(a, 32)\nheld_out = DataLoader(b, 32)\nfor x in train:\n    pass\n"
    run = training(where={"loader": ["train.py", 3]})
    assert change("shuffle", loaders, run=run) == ["-train = DataLoader(a, 32)", "+train = DataLoader(a, 32, shuffle=True)"]
    assert change("load_in_workers", loaders, run=run, workers=3) == [
        "-train = DataLoader(a, 32)",
        "+train = DataLoader(a, 32, num_workers=3)",
    ]
    assert change("shuffle", loaders) is None
    assert change("set_option", option="eps", value=1e-8)[1].endswith("lr=RATE, eps=1e-08)")  # type: ignore[index]
    attend = "x = F.scaled_dot_product_attention(q, k, v)\n"
    assert change("causal_mask", attend) == [f"-{attend}".strip(), "+x = F.scaled_dot_product_attention(q, k, v, is_causal=True)"]
    assert change("causal_mask", attend.replace("v)", "v, mask)")) is None


NET = """\
class Net(nn.Module):
    def __init__(self):
        self.sizes = [4, 5]
        self.layers = []
        for a in self.sizes:
            self.layers.append(nn.Linear(a, a))
"""


def test_layers_in_a_plain_list_become_a_module_list() -> None:
    assert change("hold_all_parameters", NET) == ["-        self.layers = []", "+        self.layers = nn.ModuleList()"]
    at_once = NET.replace("self.layers = []", "self.layers = [nn.Linear(4, 4) for _ in range(3)]").replace(
        "            self.layers.append", "            print"
    )
    found = change("hold_all_parameters", at_once.replace("(nn.Module)", "(torch.nn.Module)"))
    assert found is not None
    assert found[1] == "+        self.layers = torch.nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])"
    assert change("hold_all_parameters", NET.replace("(nn.Module)", "")) is None
    assert change("hold_all_parameters", NET.replace("nn.Linear(a, a)", "a")) is None
    assert change("hold_all_parameters", NET + NET) is None


@pytest.mark.parametrize(("kind", "cut"), [("LSTM", "tuple(each.detach() for each in state)"), ("GRU", "state.detach()")])
def test_a_carried_state_is_detached_before_the_model_gets_it(kind: str, cut: str) -> None:
    text = f"rnn = nn.{kind}(1, 8)\nfor x in data:\n    out, state = model(x, state)\n    out.sum().backward()\n"
    run = training(where={"forward": ["train.py", 3]})
    run.run_facts["keepers"] = [{"name": "state", "file": "train.py", "line": 3}]
    assert change("detach_state", text, run=run) == [f"+    state = state if state is None else {cut}"]
    assert change("detach_state", text.replace("(x, state)", "(x)"), run=run) is None
    assert change("detach_state", text) is None


def test_accumulated_losses_are_divided() -> None:
    assert change("divide_losses", parts=4) == ["-    loss.backward()", "+    (loss / 4).backward()"]
    scaled = LOOP.replace("loss.backward()", "scaler.scale(loss).backward()")
    assert change("divide_losses", scaled, parts=4)[1] == "+    (scaler.scale(loss) / 4).backward()"  # type: ignore[index]


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
    rows = change("same_shape", "loss = criterion(model(x[rows]), y[rows])\n", Location("train.py", 1))
    assert rows is not None
    assert rows[1] == "+loss = criterion(model(x[rows]).reshape(y[rows].shape), y[rows])"
    by_hand = change("same_shape", "loss = ((prediction - target) ** 2).mean()\n", Location("train.py", 1))
    assert by_hand is not None
    assert by_hand[1] == "+loss = ((prediction.reshape(target.shape) - target) ** 2).mean()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.sigmoid(self.head(x))", "self.head(x)"),
        ("F.relu(self.head(x), inplace=True)", "self.head(x)"),
        ("self.head(x).tanh()", "self.head(x)"),
        ("self.head(torch.tanh(x))", None),
        ("self.softmax(self.head(x))", None),
    ],
)
def test_the_last_activation_is_taken_out(before: str, after: str | None) -> None:
    found = change("drop_last_activation", f"def forward(self, x):\n    x = torch.relu(x)\n    return {before}\n")
    assert found == ([f"-    return {before}", f"+    return {after}"] if after else None)


def test_sums_become_means_and_a_minus_is_taken_away() -> None:
    assert change("mean_loss", 'criterion = nn.MSELoss(reduction="sum")\n') == [
        '-criterion = nn.MSELoss(reduction="sum")',
        '+criterion = nn.MSELoss(reduction="mean")',
    ]
    assert change("mean_loss", "criterion = nn.MSELoss()\n") is None
    run = training(where={"loss": ["train.py", 1]})
    assert change("negate_loss", "loss = -criterion(model(x), y)\n", run=run) == [
        "-loss = -criterion(model(x), y)",
        "+loss = criterion(model(x), y)",
    ]
    assert change("negate_loss", "loss = criterion(model(x), y)\n", run=run) is None


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
