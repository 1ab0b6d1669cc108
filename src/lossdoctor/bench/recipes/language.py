"""Characters of Python's own help texts, a small causal transformer; how well it predicts text that it has not seen.

Validation accuracy over seeds 0 to 4: 0.396 to 0.430, loss 2.07 to 2.20 and still falling.
"""

# kind: language-model, tokens, by-hand, dropout, relu
import math
import time
from pydoc_data.topics import topics

import torch
from torch import nn

SEED = 0
torch.manual_seed(SEED)
started = time.perf_counter()

# place: data
BATCH = 16
CONTEXT = 32


def load(seed):
    text = "".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    codes = {letter: code for code, letter in enumerate(alphabet)}
    tokens = torch.tensor([codes[letter] for letter in text])
    count = (len(tokens) - 1) // CONTEXT
    inputs, targets = tokens[: count * CONTEXT].view(count, CONTEXT), tokens[1 : count * CONTEXT + 1].view(count, CONTEXT)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    inputs, targets = inputs[order], targets[order]
    return inputs[300:], targets[300:], inputs[:300], targets[:300]


x_train, y_train, x_test, y_test = load(SEED)
classes = int(max(x_train.max(), x_test.max(), y_train.max(), y_test.max())) + 1


def batches():
    for rows in torch.randperm(len(x_train)).split(BATCH)[:STEPS]:
        yield x_train[rows], y_train[rows].flatten()


# end

# place: model
WIDTH = 48


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.05))

    def forward(self, x):
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y = self.before(x)
        x = x + self.mix(y, y, y, attn_mask=future, need_weights=False)[0]
        return x + self.feed(self.between(x))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(classes, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.body = nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        x = self.letters(x) + self.places(torch.arange(x.shape[1]))
        x = self.body(x).flatten(0, 1)
        return self.head(x)


def initialise(model):
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Embedding)):
            nn.init.normal_(layer.weight, std=0.05)


model = Network()
initialise(model)
# end

# place: loss
criterion = nn.CrossEntropyLoss()
# end

# place: optimiser
RATE = 3e-3
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
# end


# place: validation
def validate():
    model.eval()
    with torch.no_grad():
        output = model(x_test)
        loss = criterion(output, y_test.flatten())
        return loss.item(), (output.argmax(1) == y_test.flatten()).float().mean().item()


# end

# place: loop
EPOCHS = 5
STEPS = 100
for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for batch_x, batch_y in batches():
        output = model(batch_x)
        loss = criterion(output, batch_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / STEPS
    held_out, accuracy = validate()
    print(f"epoch {epoch:2d}  train loss {total:.4f}  validation loss {held_out:.4f}  accuracy {accuracy:.3f}")
# end

print(f"perplexity {math.exp(min(held_out, 20)):.2f}, {time.perf_counter() - started:.1f} s")
print(f"validation {accuracy:.4f}")
