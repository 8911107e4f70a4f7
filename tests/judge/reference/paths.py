"""The definitions of hierarchical metrics, in sets, one document at a time."""


def ancestors(node, parents):
  above = set()
  for parent in parents.get(node, ()):
    above |= {parent} | ancestors(parent, parents)
  return above


def top_concept(labels, parents):
  """The only root with children, if it is no label; else ''."""
  roots = {p for above in parents.values() for p in above if not parents[p]}
  return ''.join(roots) if len(roots) == 1 and not roots & set(labels) else ''


def closed(labels, parents, top=''):
  """The labels and all their ancestors, without a concept above all others."""
  nodes = set(labels)
  for label in labels:
    nodes |= ancestors(label, parents)
  return nodes - {top}


def level(node, parents):
  return 1 + min((level(p, parents) for p in parents.get(node, ())), default=0)


def shares(pairs):
  """P, R and F1 of pairs (predicted, gold), pooled over documents."""
  both = sum(len(predicted & gold) for predicted, gold in pairs)
  said = sum(len(predicted) for predicted, _ in pairs)
  true = sum(len(gold) for _, gold in pairs)
  return {
    'P': both / said if said else None,
    'R': both / true if true else None,
    'F1': 2 * both / (said + true) if said + true else None,
  }


def judge(predicted, gold, labels, parents, top=''):
  rows = list(zip(predicted, gold, strict=True))
  values = {
    f'h{name}': value
    for name, value in shares(
      [(closed(p, parents, top), closed(g, parents, top)) for p, g in rows]
    ).items()
  }
  whole = [
    all(q in row for q in parents.get(label, ()) if q in labels)
    for row in predicted
    for label in row
  ]
  values['consistency'] = sum(whole) / len(whole) if whole else None
  for number in {level(label, parents) for label in labels}:
    here = {label for label in labels if level(label, parents) == number}
    at = shares([(here & set(p), here & set(g)) for p, g in rows])
    values |= {f'micro-{n}[level={number}]': v for n, v in at.items()}
    values[f'n_labels[level={number}]'] = len(here)
    values[f'n_gold[level={number}]'] = sum(len(here & set(g)) for _, g in rows)
  return values
