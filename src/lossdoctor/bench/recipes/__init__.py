"""Small healthy training scripts that stand for users' scripts: none imports lossdoctor.

All mark the same six places in the same words, so that one edit of a plant works on all of them. A place begins with
`# place: data` (or model, loss, optimiser, validation, loop) and is closed by `# end`. These lines stand in it exactly once:

data
    `BATCH = ...`; `x_train, y_train, x_test, y_test = load(SEED)`;
    tag `scaled`: `mean, std = ...` and `x_train, x_test = (x_train - mean) / std, (x_test - mean) / std`;
    kind `regression`: also `y_train, y_test = (y_train - centre) / spread, (y_test - centre) / spread`;
    tag `loader`: a `Dataset` with `return self.inputs[index], self.targets[index]`, and
    `loader = DataLoader(..., batch_size=BATCH, shuffle=True)`;
    tag `by-hand`: a generator `batches()` with `yield x_train[rows], y_train[rows]`.
model
    `WIDTH = ...`; `class Network(nn.Module):` with `self.body`, `self.head` and `return self.head(x)`;
    `model = Network()`; `initialise(model)`.
loss
    `criterion = nn.CrossEntropyLoss()`, or another loss of `nn`.
optimiser
    `RATE = ...`; `optimizer = torch.optim.Adam(model.parameters(), lr=RATE)`, or another one.
validation
    `def validate():`, `model.eval()`, `with torch.no_grad():`, `output = model(x_test)`.
loop
    `EPOCHS = ...`; `model.train()` (once an epoch), `for batch_x, batch_y in loader:` or `in batches():`,
    `output = model(batch_x)`, `loss = criterion(output, batch_y)`, `optimizer.zero_grad()`, `loss.backward()`,
    `optimizer.step()`.

`SEED = 0` stands at the top and is set by the matrix. A line `# kind: classifier, loader, scaled, dropout` gives the kind and
its tags; a plant applies where its `kinds` are empty or name any of them. Targets are one class per row in a classifier, of shape
(rows, 1) in a regression. `torch`, `nn`, `time` and `math` are imported by each.
"""
