"""Times torch's one-vs-all layer for ova_head.py; needs torch.

  python ova_head_peer.py DEVICE LABELS FEATURES DOCUMENTS CHUNK

CHUNK 0 is the dense formulation: linear, BCE with logits, backward, SGD. Other
values run chunks of labels; each chunk has its own backward pass and updates
its rows immediately. Answers lines `step` with the seconds of a step, and
`memory` with the peak bytes above the idle process.
"""

from collections.abc import Callable
import sys

from measurement import memory, seconds_of
import torch
from torch.nn import functional

POSITIVES = 8


def make_step(
  device: str, labels: int, dim: int, documents: int, chunk: int
) -> Callable[[], None]:
  """Returns a step of a new layer."""
  dtype = torch.bfloat16 if device == 'cuda' else torch.float32
  kernel = torch.empty(labels, dim, device=device, dtype=dtype).normal_()
  bias = torch.zeros(labels, device=device, dtype=dtype)
  document = torch.randn(documents, dim, device=device, dtype=dtype)
  gold = torch.randint(0, labels, (documents, POSITIVES), device=device)
  rows = torch.arange(documents, device=device)[:, None]
  rows = rows.expand_as(gold)
  rate = 0.01 / documents

  def part(first: int, size: int, features: torch.Tensor) -> None:
    weights = kernel[first : first + size].requires_grad_()
    offset = bias[first : first + size].requires_grad_()
    logits = functional.linear(features, weights, offset)
    target = torch.zeros_like(logits)
    inside = (gold >= first) & (gold < first + size)
    target[rows[inside], gold[inside] - first] = 1
    loss = functional.binary_cross_entropy_with_logits(
      logits, target, reduction='sum'
    )
    loss.backward()
    with torch.no_grad():
      kernel[first : first + size].sub_(weights.grad, alpha=rate)
      bias[first : first + size].sub_(offset.grad, alpha=rate)

  def step() -> None:
    features = document.detach().requires_grad_()
    for first in range(0, labels, chunk or labels):
      part(first, min(chunk or labels, labels - first), features)
    if device == 'cuda':
      torch.cuda.synchronize()

  return step


def main() -> None:
  """Answers lines of standard input."""
  device, *sizes = sys.argv[1:]
  if device == 'cpu':
    torch.set_num_threads(2)
  torch.ones(512, 512, device=device) @ torch.ones(512, 512, device=device)
  idle = memory('VmRSS')
  step = make_step(device, *map(int, sizes))
  for line in sys.stdin:
    if line.strip() == 'memory':
      cuda = device == 'cuda'
      peak = memory('VmHWM') - idle
      print(torch.cuda.max_memory_allocated() if cuda else peak, flush=True)
      continue
    print(seconds_of(step), flush=True)


if __name__ == '__main__':
  main()
