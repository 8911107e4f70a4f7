"""Files of documents, and runs that tag them."""

import json

from xjax.run.predict_file import predict_file


def write_rows(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def read_rows(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def contents(folder):
  files = (path for path in folder.rglob('*') if path.is_file())
  return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows_of(documents):
  return [
    {'id': d.id, 'zones': dict(d.zones), 'labels': list(d.labels)}
    for d in documents
  ]


def tag(workdir, folder, rows, k=3, **options):
  """Tags rows of in.jsonl in a folder; returns the path of out.jsonl."""
  source, out = write_rows(folder / 'in.jsonl', rows), folder / 'out.jsonl'
  predict_file(workdir, str(source), str(out), k, **options)
  return out
