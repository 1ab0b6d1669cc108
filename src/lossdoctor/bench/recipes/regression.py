"""A noisy smooth function of ten measurements in units of their own, a perceptron with dropout, batches cut by hand.

Explained share of the validation variance over seeds 0 to 4: 0.934 to 0.963.
"""

# kind: regression, by-hand, scaled, dropout, relu
import math
import time

import torch
from sklearn.datasets import make_friedman1
from torch import nn

SEED = 0
torch.manual_seed(SEED)
started = time.perf_counter()

# place: data
BATCH = 32


def load(seed):
    inputs, targets = make_friedman1(n_samples=2500, n_features=10, noise=0.5, random_state=seed)
    units = torch.logspace(-1, 3, 10)
    inputs = torch.tensor(inputs, dtype=torch.float32) * units
    targets = torch.tensor(targets, dtype=torch.float32).unsqueeze(1)
    return inputs[:2000], targets[:2000], inputs[2000:], targets[2000:]


x_train, y_train, x_test, y_test = load(SEED)
mean, std = x_train.mean(0), x_train.std(0)
x_train, x_test = (x_train - mean) / std, (x_test - mean) / std
centre, spread = y_train.mean(), y_train.std()
y_train, y_test = (y_train - centre) / spread, (y_test - centre) / spread


def batches():
    for rows in torch.randperm(len(x_train)).split(BATCH):
        yield x_train[rows], y_train[rows]


# end

# place: model
WIDTH = 64


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.05))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.body(x)
        return self.head(x)


def initialise(model):
    for layer in model.body:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)


model = Network()
initialise(model)
# end

# place: loss
criterion = nn.MSELoss()
# end

# place: optimiser
RATE = 1e-2
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
# end


# place: validation
def validate():
    model.eval()
    with torch.no_grad():
        output = model(x_test)
        loss = criterion(output, y_test)
        return loss.item(), 1 - loss.item() / y_test.var().item()


# end

# place: loop
EPOCHS = 20
for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for batch_x, batch_y in batches():
        output = model(batch_x)
        loss = criterion(output, batch_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch_x)
    held_out, explained = validate()
    print(f"epoch {epoch:2d}  train loss {total / len(x_train):.4f}  validation loss {held_out:.4f}  explained {explained:.3f}")
# end

print(f"root mean square error {math.sqrt(held_out):.3f}, {time.perf_counter() - started:.1f} s")
print(f"validation {explained:.4f}")
