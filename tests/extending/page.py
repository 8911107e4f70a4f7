"""The files of docs/extending.md, and commands that can import them."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'docs' / 'extending.md').read_text()
FILES = dict(re.findall(r'```python\n# (\w+)\.py\n(.*?)```', PAGE, re.S))


def start(folder, *words, cwd=ROOT):
  """Runs Python, which finds the modules of a folder; returns how it ended."""
  environment = {'PYTHONPATH': f'{folder}:{ROOT}', 'JAX_NUM_CPU_DEVICES': '1'}
  return subprocess.run(
    [sys.executable, *words],
    cwd=cwd,
    env=os.environ | environment,
    capture_output=True,
    text=True,
    timeout=300,
  )
