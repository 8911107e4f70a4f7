"""LibMultiLabel's label-wise attention, for test_encoders.py.

  $XJAX_PEERS_DIR/bin/python tests/parity/attention_peer.py IN.npz OUT.npz

Runs in the peers' environment (peers.sh), so it imports nothing of ours. IN:
hidden [B, T, D], attention and output [L, D], bias [L], weight [B, L]. OUT:
logits [B, L], and the gradients of their weighted sum, d_NAME.
"""

import sys

from libmultilabel.nn.networks.modules import (
  LabelwiseAttention,
  LabelwiseLinearOutput,
)
import numpy as np
import torch


def main(given: str, out: str) -> None:
  arrays = {
    name: torch.tensor(array)
    for name, array in np.load(given, allow_pickle=False).items()
  }
  labels, dim = arrays['output'].shape
  attend = LabelwiseAttention(dim, labels)
  output = LabelwiseLinearOutput(dim, labels)
  parameters = {
    'attention': attend.attention.weight,
    'output': output.output.weight,
    'bias': output.output.bias,
  }
  with torch.no_grad():
    for name, parameter in parameters.items():
      parameter.copy_(arrays[name])
  hidden = arrays['hidden'].requires_grad_()
  logits = output(attend(hidden)[0])
  (logits * arrays['weight']).sum().backward()
  gradients = {'d_hidden': hidden.grad}
  gradients |= {f'd_{name}': p.grad for name, p in parameters.items()}
  np.savez(out, logits=logits.detach(), **gradients)


if __name__ == '__main__':
  main(*sys.argv[1:])
