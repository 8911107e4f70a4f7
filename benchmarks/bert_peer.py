"""The transformers side of bert.py; runs where torch is installed.

  python bert_peer.py SIZES      (JSON)

Answers lines `step MODEL TOKENS train|infer COUNT` with the seconds of each
step, or with none where torch.compile does not work.
"""

from collections.abc import Callable
import json
import sys
import time

import torch
from torch import nn
import torch._inductor.config
import transformers


class Tagger(nn.Module):
  """BERT, its [CLS] vector with dropout, and a dense layer over labels."""

  def __init__(self, model: str, tokens: int, sizes: dict):
    """Random weights."""
    super().__init__()
    dim, layers, heads, inner = sizes['models'][model]
    config = transformers.BertConfig(
      vocab_size=sizes['vocab'],
      hidden_size=dim,
      num_hidden_layers=layers,
      num_attention_heads=heads,
      intermediate_size=inner,
      max_position_embeddings=max(tokens, 512),
      hidden_dropout_prob=sizes['dropout'],
      attention_probs_dropout_prob=sizes['attention_dropout'],
      attn_implementation='sdpa',
    )
    self.bert = transformers.BertModel(config, add_pooling_layer=False)
    self.dropout = nn.Dropout(sizes['dropout'])
    self.head = nn.Linear(dim, sizes['labels'])

  def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Logits [B, L]."""
    hidden = self.bert(ids, attention_mask=mask).last_hidden_state
    return self.head(self.dropout(hidden[:, 0]))


def make_step(
  model: str, tokens: int, kind: str, sizes: dict
) -> Callable[[], None]:
  """A step of a model, compiled where that is asked for."""
  device, labels = torch.device(sizes['device']), sizes['labels']
  tagger = Tagger(model, tokens, sizes).to(device)
  tagger.train(kind == 'train')
  shape = sizes['batch'], tokens
  ids = torch.randint(1, sizes['vocab'], shape, device=device)
  mask = torch.ones_like(ids)
  gold = torch.zeros(shape[0], labels, device=device)
  gold[:, : sizes['positives']] = 1
  # Sizes left open and weights laid out for good (inductor's freezing, for
  # inference alone) bring oneDNN's products in the place of MKL's.
  frozen = sizes['frozen'] and kind == 'infer'
  torch._dynamo.reset()  # else a second length leaves sizes open by itself
  torch._inductor.config.freezing = frozen
  run = tagger
  if sizes['compiled']:
    run = torch.compile(tagger, dynamic=True if frozen else None)
  mixed = torch.autocast(
    device.type, torch.bfloat16, enabled=sizes['dtype'] == 'bfloat16'
  )

  def infer() -> None:
    with torch.no_grad(), mixed:
      torch.topk(run(ids, mask).float(), 50)

  optimizer = torch.optim.AdamW(
    tagger.parameters(), sizes['learning_rate'], weight_decay=0.01, fused=True
  )
  criterion = nn.BCEWithLogitsLoss(reduction='sum')

  def train() -> None:
    optimizer.zero_grad()
    with mixed:
      logits = run(ids, mask)
    (criterion(logits.float(), gold) / len(gold)).backward()
    nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
    optimizer.step()

  return train if kind == 'train' else infer


def seconds_of(step: Callable[[], None], device: str) -> float:
  """Seconds of one call, to the end of what it has begun."""
  start = time.perf_counter()
  step()
  if device == 'cuda':
    torch.cuda.synchronize()
  return time.perf_counter() - start


def main() -> None:
  """Answers until there is nothing more to answer."""
  sizes = json.loads(sys.argv[1])
  torch.set_num_threads(sizes['threads'])
  torch.manual_seed(0)
  row, step = None, None
  for line in sys.stdin:
    _, *asked, count = line.split()
    if asked != row:
      row, step = asked, None  # the last one's memory is free first
      step = make_step(row[0], int(row[1]), row[2], sizes)
    try:
      seconds = [seconds_of(step, sizes['device']) for _ in range(int(count))]
    except torch._dynamo.exc.TorchDynamoException:
      seconds = []
    print(json.dumps(seconds), flush=True)


if __name__ == '__main__':
  main()
