import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
pixels, digits = load_digits(return_X_y=True)
pixels = torch.tensor(pixels / 16, dtype=torch.float32)
digits = torch.tensor(digits)
train = DataLoader(TensorDataset(pixels[:1400], digits[:1400]), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_function = nn.CrossEntropyLoss()

for epoch in range(20):
    model.train()
    for x, y in train:
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(pixels[1400:]).argmax(dim=1) == digits[1400:]).float().mean()
    print(f"epoch {epoch}: loss {loss:.3f}, validation accuracy {right:.3f}")
