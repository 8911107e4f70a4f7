"""Times BERT of transformers for bert.py; needs torch and transformers.

  python bert_peer.py SIZES      (JSON)

Answers each line `step MODEL TOKENS train|infer COUNT` with a list of the
seconds of each step; the list is empty if torch.compile fails.
"""

from collections.abc import Callable
import json
import sys

from measurement import seconds_of
import torch
from torch import nn
import torch._inductor.config
import transformers


class Tagger(nn.Module):
  """BERT, its [CLS] vector with dropout, and a dense layer over labels."""

  def __init__(self, model: str, tokens: int, sizes: dict):
    """Makes a model with random weights."""
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
    """Returns logits [B, L]."""
    hidden = self.bert(ids, attention_mask=mask).last_hidden_state
    return self.head(self.dropout(hidden[:, 0]))


def make_step(
  model: str, tokens: int, kind: str, sizes: dict
) -> Callable[[], None]:
  """Returns a step of a model, compiled if sizes['compiled']."""
  device, labels = torch.device(sizes['device']), sizes['labels']
  tagger = Tagger(model, tokens, sizes).to(device)
  tagger.train(kind == 'train')
  shape = sizes['batch'], tokens
  ids = torch.randint(1, sizes['vocab'], shape, device=device)
  mask = torch.ones_like(ids)
  gold = torch.zeros(shape[0], labels, device=device)
  gold[:, : sizes['positives']] = 1
  # With dynamic sizes and frozen weights (inductor's freezing, which works only
  # for inference), torch uses oneDNN's products instead of MKL's.
  frozen = sizes['frozen'] and kind == 'infer'
  torch._dynamo.reset()  # otherwise a second length makes sizes dynamic
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

  step = train if kind == 'train' else infer

  def finished() -> None:
    step()
    if device.type == 'cuda':
      torch.cuda.synchronize()

  return finished


def main() -> None:
  """Answers the lines of standard input."""
  sizes = json.loads(sys.argv[1])
  torch.set_num_threads(sizes['threads'])
  torch.manual_seed(0)
  row, step = None, None
  for line in sys.stdin:
    _, *row_of_line, count = line.split()
    if row_of_line != row:
      row, step = row_of_line, None  # frees the memory of the last step
      step = make_step(row[0], int(row[1]), row[2], sizes)
    try:
      seconds = [seconds_of(step) for _ in range(int(count))]
    except torch._dynamo.exc.TorchDynamoException:
      seconds = []
    print(json.dumps(seconds), flush=True)


if __name__ == '__main__':
  main()
