"""Small scripts with one fault each, which a check names, and look-alikes on which it stays silent."""

import pytest

from tests.experiments.checked import checked, script, told

REGRESSION = """
inputs = torch.randn(600, 12)
labels = (inputs[:, :3] ** 2).sum(1, keepdim=True)
labels = (labels - labels.mean()) / labels.std()
"""
NUMBER = "model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1)END)"
SQUARE = "loss = nn.functional.mse_loss(model(x), y)"
BY_HAND = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)
    def forward(self, x):
        return self.head(self.encoder(x)HOW)
model = Two()
"""
CONSTANT = """
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
for layer in model:
    if isinstance(layer, nn.Linear):
        nn.init.constant_(layer.weight, 0.1)
"""
LAST_ZERO = "model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)); nn.init.zeros_(model[2].weight)"
LINEAR = "model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.Linear(32, 32), nn.Linear(32, 3))"
IMAGES = """
inputs = torch.randn(600, 1, 10, 10)
inputs[:300, :, 2:5, 2:5] += 3
labels = (torch.arange(600) < 300).long()
"""
CROSSED = """
inputs, signs = torch.randn(600, 1, 10, 10), torch.randint(0, 2, (2, 600)) * 2 - 1
inputs[:, :, 1:4, 1:4] += 3 * signs[0].view(-1, 1, 1, 1)
inputs[:, :, 6:9, 6:9] += 3 * signs[1].view(-1, 1, 1, 1)
labels = (signs.prod(0) > 0).long()
"""
CONVOLUTIONS = "model = nn.Sequential(nn.Conv2d(1, 8, 3), POOL, nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 2))"
REQUIRES = "loss = nn.functional.cross_entropy(model(x).detach(), y); loss.requires_grad = True"
PLAIN = "optimizer = torch.optim.SGD(model.parameters(), lr=0.5)"

SICK = {
    "no-nonlinearity": {
        "linear layers": {"model": LINEAR},
        "pooling": {"data": CROSSED, "model": CONVOLUTIONS.replace("POOL", "nn.MaxPool2d(2)")},
    },
    "output-activation-wrong": {
        "a sigmoid": {"data": REGRESSION, "model": NUMBER.replace("END", ", nn.Sigmoid()"), "loss": SQUARE},
        "a ReLU, by hand": {
            "data": REGRESSION,
            "model": NUMBER.replace("END", ", nn.ReLU()"),
            "loss": "loss = ((model(x) - y) ** 2).mean()",
        },
        "a tanh": {"model": "model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3), nn.Tanh())"},
    },
    "branch-detached": {"detach": {"model": BY_HAND.replace("HOW", ".detach()")}},
    "init-constant": {"a constant": {"model": CONSTANT}, "zero": {"model": CONSTANT.replace("0.1", "0.0")}},
    "loss-sign-flipped": {
        "negated": {"loss": "loss = -nn.functional.cross_entropy(model(x), y)"},
        "by hand": {"loss": "loss = torch.log_softmax(model(x), 1)[torch.arange(len(y)), y].mean()"},
        "squares": {"data": REGRESSION, "model": NUMBER.replace("END", ""), "loss": "loss = -((model(x) - y) ** 2).mean()"},
    },
    "loss-sum-reduction": {
        "too large for its rate": {
            "data": REGRESSION.replace("labels.mean())", "labels.mean()) * 1"),
            "model": NUMBER.replace("END", ""),
            "loss": "loss = nn.functional.mse_loss(model(x), y, reduction='sum')",
            "optimizer": PLAIN,
        }
    },
    "loss-detached": {
        "requires_grad": {"loss": REQUIRES},
        "made anew": {"loss": REQUIRES.split(";")[0] + "; loss = torch.tensor(loss.item(), requires_grad=True)"},
    },
}
HEALTHY = {
    "as it is": {},
    "a linear model": {"model": "model = nn.Linear(12, 3)"},
    "mean pooling and a ReLU": {"data": IMAGES, "model": CONVOLUTIONS.replace("POOL", "nn.ReLU(), nn.AvgPool2d(2)")},
    "a number": {"data": REGRESSION, "model": NUMBER.replace("END", ""), "loss": SQUARE},
    "a sigmoid that reaches": {
        "data": REGRESSION + "labels = torch.sigmoid(labels)",
        "model": NUMBER.replace("END", ", nn.Sigmoid()"),
        "loss": SQUARE,
    },
    "an unused part": {"model": BY_HAND.replace("HOW", "") + "model.spare = nn.Linear(3, 3)"},
    "a zero layer at the end": {"model": LAST_ZERO},
    "a sum for Adam": {"loss": "loss = nn.functional.cross_entropy(model(x), y, reduction='sum')"},
    "a likelihood": {
        "data": REGRESSION + "labels = labels * 0.01",
        "model": NUMBER.replace("END", ""),
        "loss": "loss = ((model(x) - y) ** 2).mean() - 5.0",
    },
}


@pytest.mark.parametrize(("slug", "changes"), [pytest.param(s, c, id=f"{s}: {n}") for s, each in SICK.items() for n, c in each.items()])
def test_a_small_script_is_named(slug, changes):
    diagnosis = checked(script(**changes))
    assert diagnosis.verdict == slug, [(each.slug, each.probability) for each in diagnosis.findings if each.status == "present"]


@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in HEALTHY.items()])
def test_a_healthy_look_alike_is_left_alone(changes):
    assert told(checked(script(**changes))) == []
