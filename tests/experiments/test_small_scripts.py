"""Small scripts with one fault each, which a check names, and look-alikes on which it stays silent."""

import pytest

from tests.experiments.checked import PARTS, checked, script, told

pytestmark = pytest.mark.slow  # some seconds each


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

BINARY = "loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)"
SIGNS = "inputs = torch.randn(600, 12); labels = inputs[:, :3].prod(1, keepdim=True).sign()"
NAMES = """
labels = torch.randint(0, 6, (600,))
inputs = 0.5 * torch.randn(600, 12)
inputs[:, 0] += torch.tensor([0.0, 5, 1, 4, 2, 3])[labels]
inputs[:, 1] += torch.tensor([2.0, 0, 1, 1, 0, 2])[labels]
"""
GRADES = "inputs = torch.randn(600, 12); labels = (inputs[:, :3].sum(1) * 1.2 + 2).round().clamp(0, 4).long()"
ORDERED = PARTS["data"] + "order = labels.argsort(); inputs, labels = inputs[order], labels[order]"
FIRST = """
for step in range(60):
    x, y = next(iter(loader))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
""".replace("iter(loader)", "iter(torch.utils.data.DataLoader(data, 32))")
DRAWS = """
class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.generator = np.random.default_rng(0)
    def __len__(self):
        return len(inputs)
    def __getitem__(self, place):
        return inputs[place] + 0.1 * torch.from_numpy(self.generator.normal(size=12)).float(), labels[place]
loader = torch.utils.data.DataLoader(Noisy(), 32, shuffle=True, num_workers=2)
"""
ADAPTER = """
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).requires_grad_(False)
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.adapter = model, nn.Linear(12, 1)
    def forward(self, x):
        return self.base(x)
model = Adapted()
"""
THROUGH = "x.requires_grad_(); loss = nn.functional.cross_entropy(model(x), y)"

SCORE = """
model.eval()
right = 0
with torch.no_grad():
    for start in range(0, 600, 100):
        outputs = model(inputs[start:start + 100])
        right += (torch.softmax(outputs, dim=AXIS).argmax(dim=1) == labels[start:start + 100]).sum().item()
model.train()
"""
NORMED = """
inputs = inputs * 3 + 5
model = nn.Sequential(nn.BatchNorm1d(12HOW), nn.Linear(12, 32), nn.ReLU(), nn.BatchNorm1d(32HOW), nn.Linear(32, 3))
"""
HELD = """
model.eval()
with torch.no_grad():
    nn.functional.cross_entropy(model(inputs[:200] + 0.01), labels[:200])
model.train()
"""
TINY = PARTS["data"] + "inputs = inputs * 0.002"
LEAK = PARTS["data"] + "inputs = torch.cat([inputs, labels[:, None] + 0.02 * torch.randn(600, 1)], 1)"
RARE = "inputs = torch.randn(1500, 12); labels = (inputs[:, 0] + inputs[:, 1] > 2.4).long()"
SPLIT = PARTS["data"] + "seen = labels < 2; unseen, strange = inputs[~seen], labels[~seen]; inputs, labels = inputs[seen], labels[seen]"
UNSEEN = """
with torch.no_grad():
    x, y = unseen, strange
    right = (model(x).argmax(1) == y).float().mean().item()
"""
PICTURES = """
low = torch.randn(600, 3, 4, 4)
labels = (low[:, 0, 0, 0] > low[:, 0, 3, 3]).long()
inputs = nn.functional.interpolate(low, size=(16, 16), mode="bilinear")HOW
"""
PICTURE_MODEL = "model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(200, 2))"
TEXTS = """
inputs = torch.randint(1, 20, (600, 12))
lengths = torch.randint(4, 12, (600,))
inputs[torch.arange(12)[None] >= lengths[:, None]] = 0
labels = (inputs == 7).any(1).long() + (inputs == 3).any(1).long()
"""
READER = """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 3)
    def forward(self, ids):
        values = self.tokens(ids) + self.places(torch.arange(12))
        return self.head(self.layer(values, src_key_padding_mask=MASK)[:, 0])
model = Reader()
"""

GREYS = "inputs = torch.sigmoid(torch.randn(600, 3) @ torch.randn(3, 20)); labels = inputs"
VARIATIONAL = """
class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 6)), nn.Linear(3, 20)
    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return torch.sigmoid(self.decoder(code)), mean, log_variance
model = Variational()
"""
EVIDENCE = """
pictured, mean, log_variance = model(x)
fit = nn.functional.binary_cross_entropy(pictured, x, reduction="sum")
loss = fit - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
"""

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
        "yes and no, by hand": {
            "data": "inputs = torch.randn(600, 12); labels = (inputs[:, :1] > 0).float()",
            "model": NUMBER.replace("END", ", nn.Sigmoid()"),
            "loss": "p = model(x)\nloss = (y * torch.log(p + 1e-7) + (1 - y) * torch.log(1 - p + 1e-7)).mean()",
        },
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
SICK |= {
    "labels-all-ignored": {"all": {"loss": "loss = nn.functional.cross_entropy(model(x), torch.full_like(y, -100))"}},
    "labels-misencoded": {
        "signs": {"data": SIGNS, "model": NUMBER.replace("END", ""), "loss": BINARY},
        "one class": {"data": PARTS["data"] + "labels = (labels / 255).long()"},
    },
    "loss-family-wrong": {
        "one output": {"model": NUMBER.replace("END", ""), "loss": "loss = nn.functional.cross_entropy(model(x), 0 * y)"},
        "names as amounts": {
            "data": NAMES,
            "model": NUMBER.replace("END", ""),
            "loss": "loss = nn.functional.mse_loss(model(x)[:, 0], y.float())",
        },
    },
    "not-shuffled": {"by class": {"data": ORDERED, "loader": PARTS["loader"].replace("shuffle=True", "shuffle=False")}},
    "same-batch-every-step": {"begun anew": {"loop": FIRST}},
    "worker-seeds-equal": {"a generator of its own": {"loader": DRAWS}},
    "nothing-trainable": {"adapters beside the way": {"model": ADAPTER, "loss": THROUGH, "optimizer": PLAIN}},
}
SICK |= {
    "batchnorm-statistics": {
        "too slow": {
            "model": NORMED.replace("HOW", ", momentum=1e-4"),
            "loop": PARTS["loop"].replace("range(4)", "range(8)"),
            "validate": HELD,
        }
    },
    "metric-wrong": {"over the rows": {"validate": SCORE.replace("AXIS", "0")}},
    "inputs-constant": {"all alike": {"data": PARTS["data"] + "inputs = torch.ones_like(inputs)"}, "divided twice": {"data": TINY}},
    "leaky-feature": {"the label": {"data": LEAK, "model": PARTS["model"].replace("12", "13", 1)}},
    "class-imbalance": {"one in twenty": {"data": RARE, "optimizer": PLAIN.replace("0.5", "0.01")}},
    "split-shift": {"a class is missing": {"data": SPLIT, "validate": UNSEEN}},
    "axes-scrambled": {"a view": {"data": PICTURES.replace("HOW", ".permute(0, 2, 3, 1).reshape(600, 3, 16, 16)"), "model": PICTURE_MODEL}},
    "padding-mask-wrong": {"no mask": {"data": TEXTS, "model": READER.replace("MASK", "None")}},
}
HEALTHY = {
    "as it is": {},
    "a variational autoencoder": {"data": GREYS, "model": VARIATIONAL, "loss": EVIDENCE},
    "a norm that follows": {"model": NORMED.replace("HOW", ""), "validate": HELD},
    "a score over classes": {"validate": SCORE.replace("AXIS", "1")},
    "small, behind a norm": {"data": TINY, "model": PARTS["model"].replace("nn.Linear", "nn.BatchNorm1d(12), nn.Linear", 1)},
    "an amount that decides": {"data": "inputs = torch.randn(600, 12); labels = (inputs[:, 0] > 0).long()"},
    "rare and learnt": {"data": RARE, "optimizer": PARTS["optimizer"].replace("3e-3", "2e-2")},
    "split well": {"validate": UNSEEN.replace("unseen, strange", "inputs[:100], labels[:100]")},
    "pictures": {"data": PICTURES.replace("HOW", ""), "model": PICTURE_MODEL},
    "masked": {"data": TEXTS, "model": READER.replace("MASK", "ids == 0")},
    "grades as amounts": {
        "data": GRADES,
        "model": NUMBER.replace("END", ""),
        "loss": "loss = nn.functional.mse_loss(model(x)[:, 0], y.float())",
    },
    "yes and no": {"data": SIGNS + "\nlabels = (inputs[:, :1] > 0).float()", "model": NUMBER.replace("END", ""), "loss": BINARY},
    "in order, mixed before": {"loader": PARTS["loader"].replace("shuffle=True", "shuffle=False")},
    "workers that draw by torch": {"loader": DRAWS.replace("torch.from_numpy(self.generator.normal(size=12)).float()", "torch.randn(12)")},
    "a frozen part": {"model": BY_HAND.replace("HOW", "") + "model.encoder.requires_grad_(False)"},
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
