"""Trains word vectors on a corpus, as the command `xjax embeddings`."""

from xjax.commands.main import run_command

if __name__ == '__main__':
  run_command('embeddings')
