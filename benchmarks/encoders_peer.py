"""Times torch's encoders for encoders.py; runs in the peers' environment.

  python encoders_peer.py SIZES      (JSON)

Answers each line `step ENCODER COUNT` with a list of the seconds of each step.
"""

from collections.abc import Callable
import json
import sys

from measurement import seconds_of
import torch
from torch import nn


class Attention(nn.Module):
  """A sum of vectors, weighted by u . tanh(W h + b); tokens first."""

  def __init__(self, dim: int):
    """Makes W, b and u."""
    super().__init__()
    self.hidden, self.query = nn.Linear(dim, dim), nn.Linear(dim, 1, False)

  def forward(self, h: torch.Tensor) -> torch.Tensor:
    """Returns one vector per document."""
    weight = torch.softmax(self.query(torch.tanh(self.hidden(h))), 0)
    return (weight * h).sum(0)


class BiGRU(nn.Module):
  """Bidirectional GRU, tokens first, with dropout of its output."""

  def __init__(self, dim: int, sizes: dict):
    """Makes one layer."""
    super().__init__()
    self.gru = nn.GRU(dim, sizes['units'], bidirectional=True)
    self.dropout = nn.Dropout(sizes['dropout'])

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """Returns the states of both directions."""
    return self.dropout(self.gru(x)[0])


class CNN(nn.Module):
  """Convolution over time of [B, T, D], with dropout of its output."""

  def __init__(self, sizes: dict):
    """Makes one layer."""
    super().__init__()
    dim, filters, width = (sizes[n] for n in ('dim', 'filters', 'width'))
    self.convolution = nn.Conv1d(dim, filters, width, padding='same')
    self.dropout = nn.Dropout(sizes['dropout'])

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """Returns states [B, T, F]."""
    h = torch.tanh(self.convolution(x.transpose(1, 2)))
    return self.dropout(h.transpose(1, 2))


class HAN(nn.Module):
  """HAN over words and zones: [T, B * Z, D] in, [Z, B, 2 H] out."""

  def __init__(self, sizes: dict):
    """Makes both levels."""
    super().__init__()
    self.zones = sizes['zones']
    self.below = BiGRU(sizes['dim'], sizes)
    self.attention = Attention(2 * sizes['units'])
    self.above = BiGRU(2 * sizes['units'], sizes)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """Returns the states of zones."""
    zone = self.attention(self.below(x))
    return self.above(
      zone.reshape(-1, self.zones, zone.shape[1]).swapdims(0, 1)
    )


def make_step(name: str, sizes: dict) -> Callable[[], None]:
  """Returns a training step of an encoder."""
  batch, tokens, dim = sizes['batch'], sizes['tokens'], sizes['dim']
  zones = sizes['zones']
  model, shape = {
    'bigru': lambda: (BiGRU(dim, sizes), (tokens, batch, dim)),
    'cnn': lambda: (CNN(sizes), (batch, tokens, dim)),
    'han': lambda: (HAN(sizes), (tokens // zones, batch * zones, dim)),
  }[name]()
  optimizer = torch.optim.Adam(model.parameters(), sizes['learning_rate'])
  x = torch.randn(shape, requires_grad=True)

  def step() -> None:
    optimizer.zero_grad()
    x.grad = None
    (model(x) ** 2).mean().backward()
    optimizer.step()

  return step


def main() -> None:
  """Answers the lines of standard input."""
  sizes = json.loads(sys.argv[1])
  torch.set_num_threads(sizes['threads'])
  torch.manual_seed(0)
  steps: dict[str, Callable[[], None]] = {}
  for line in sys.stdin:
    _, name, count = line.split()
    if name not in steps:
      steps[name] = make_step(name, sizes)
    seconds = [seconds_of(steps[name]) for _ in range(int(count))]
    print(json.dumps(seconds), flush=True)


if __name__ == '__main__':
  main()
