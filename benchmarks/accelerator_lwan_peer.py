"""Times BiGRU-LWAN of torch, with cuDNN's GRU, for accelerator.py; needs torch.

  python accelerator_lwan_peer.py DEVICE DTYPE SIZES      (JSON)

Answers each line `step COUNT` with a list of the seconds of each step, and
`memory` with the peak bytes on the device. A step is forward, loss, backward
and Adam. In bfloat16, autocast chooses the dtype of each operation.
"""

import json
import sys

from measurement import memory, seconds_of
import torch
from torch import nn


class Lwan(nn.Module):
  """A bidirectional GRU, and a label-wise attention to its states."""

  def __init__(self, sizes: dict):
    """Makes a model with random weights."""
    super().__init__()
    labels, units = sizes['labels'], sizes['units']
    self.embedding = nn.Embedding(sizes['vocab'], sizes['dim'])
    self.words = nn.Dropout(sizes['embedding_dropout'])
    self.gru = nn.GRU(sizes['dim'], units, batch_first=True, bidirectional=True)
    self.states = nn.Dropout(sizes['encoder_dropout'])
    self.query = nn.Linear(2 * units, labels, bias=False)
    self.output = nn.Linear(2 * units, labels)

  def forward(self, tokens: torch.Tensor) -> torch.Tensor:
    """Returns logits [B, L]."""
    hidden = self.states(self.gru(self.words(self.embedding(tokens)))[0])
    weights = self.query(hidden).softmax(dim=1)  # [B, T, L]
    mixed = weights.transpose(1, 2) @ hidden  # [B, L, D]
    return (mixed * self.output.weight).sum(-1) + self.output.bias


def main() -> None:
  """Answers the lines of standard input."""
  device, dtype, sizes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
  torch.manual_seed(0)
  model = Lwan(sizes).to(device)
  optimizer = torch.optim.Adam(model.parameters(), sizes['learning_rate'])
  shape = sizes['batch'], sizes['tokens']
  tokens = torch.randint(2, sizes['vocab'], shape, device=device)
  gold = torch.zeros(shape[0], sizes['labels'], device=device)
  gold[:, : sizes['positives']] = 1
  mixed = torch.autocast(device, torch.bfloat16, enabled=dtype == 'bfloat16')
  criterion = nn.BCEWithLogitsLoss(reduction='sum')

  def step() -> None:
    optimizer.zero_grad()
    with mixed:
      logits = model(tokens)
    (criterion(logits.float(), gold) / shape[0]).backward()
    optimizer.step()
    if device == 'cuda':
      torch.cuda.synchronize()

  for line in sys.stdin:
    what, *count = line.split()
    if what == 'step':
      answer = [seconds_of(step) for _ in range(int(count[0]))]
    elif device == 'cuda':
      answer = torch.cuda.max_memory_allocated()
    else:
      answer = memory('VmHWM')
    print(json.dumps(answer), flush=True)


if __name__ == '__main__':
  main()
