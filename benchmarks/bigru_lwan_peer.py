"""Times LibMultiLabel for bigru_lwan.py; runs in the peers' environment.

  python bigru_lwan_peer.py IN.npz OUT.npz

IN has tokens [B, T], positives [B, P], and the sizes vocab, dim, units, labels,
dropouts, learning_rate, steps, threads. OUT gets the seconds of each step, the
losses, and the peak memory in bytes.
"""

import sys
import time

from libmultilabel.nn.nn_utils import init_model
from measurement import memory
import numpy as np
import torch


def main() -> None:
  """Times training steps: forward, loss, backward, Adam."""
  inputs = np.load(sys.argv[1], allow_pickle=False)
  torch.set_num_threads(int(inputs['threads']))
  torch.manual_seed(0)
  n_labels = int(inputs['labels'])
  model = init_model(
    'BiGRULWAN',
    {
      'rnn_dim': 2 * int(inputs['units']),
      'embed_dropout': float(inputs['embedding_dropout']),
      'post_encoder_dropout': float(inputs['encoder_dropout']),
    },
    classes=[str(i) for i in range(n_labels)],
    embed_vecs=torch.randn(int(inputs['vocab']), int(inputs['dim'])) * 0.1,
    learning_rate=float(inputs['learning_rate']),
    monitor_metrics=['P@1'],
    silent=True,
  )
  model.train()
  optimizer = model.configure_optimizers()
  tokens = torch.from_numpy(inputs['tokens'].astype(np.int64))
  label = torch.zeros(len(tokens), n_labels, dtype=torch.int64)
  label.scatter_(1, torch.from_numpy(inputs['positives'].astype(np.int64)), 1)
  length = torch.full((len(tokens),), tokens.shape[1], dtype=torch.int64)
  batch = {'text': tokens, 'length': length, 'label': label}
  seconds, losses = [], []
  for _ in range(int(inputs['steps'])):
    start = time.perf_counter()
    optimizer.zero_grad()
    loss = model.training_step(batch, 0)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seconds.append(time.perf_counter() - start)
  peak = memory('VmHWM')
  np.savez(sys.argv[2], seconds=seconds, losses=losses, peak=peak)


if __name__ == '__main__':
  main()
