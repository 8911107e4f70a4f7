"""Tokenizers of folders, as Hugging Face has them, and their faults."""

import json
import shutil

import pytest

from tests.data.text.test_subwords import IDS, PIECES, TOKENIZER
from xjax.core.errors import DataError, Preempted
from xjax.data.text.subwords import Subwords
from xjax.data.text.tokenizer_json import as_data_errors

CONFIG = 'tokenizer_config.json'
NEEDED = 'the folder must have tokenizer.json, or vocab.txt, or'
PADDING = 'tokens is for padding'


def test_word_pieces_of_a_folder(tmp_path):
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES) + '\n')
  found = Subwords.of_folder(tmp_path)
  assert found.text == TOKENIZER.text
  config = {'do_lower_case': False, 'pad_token': {'content': '[MASK]'}}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(config))
  cased = Subwords.of_folder(tmp_path)
  assert cased.pad_id == IDS['[MASK]']
  assert cased.encode('The É').tolist() == [2, 1, 1, 3]
  accents = {'do_lower_case': True, 'strip_accents': False}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(accents))
  assert Subwords.of_folder(tmp_path).encode('É')[1] == IDS['é']
  assert TOKENIZER.encode('É')[1] == IDS['e']


def test_what_is_beside_tokenizer_json_goes_before_it(tmp_path):
  TOKENIZER.save(tmp_path / 'tokenizer.json')
  (tmp_path / 'vocab.txt').write_text('not read')
  assert Subwords.of_folder(tmp_path).digest == TOKENIZER.digest
  (tmp_path / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
  assert Subwords.of_folder(tmp_path).encode('The')[1] == IDS['[UNK]']


def test_byte_pairs_of_a_folder(roberta_folder, tmp_path):
  found = Subwords.of_folder(roberta_folder)
  table = json.loads((roberta_folder / 'vocab.json').read_text())
  assert found.pad_id == table['<pad>'] == 1
  assert (found.before, found.after) == ((0,), (2,))
  pieces = '<s> the Ġ b a t </s>'.split()
  assert found.encode('the bat').tolist() == [table[p] for p in pieces]
  assert found.encode('').tolist() == [0, 2]
  shutil.copytree(roberta_folder, tmp_path, dirs_exist_ok=True)
  (tmp_path / 'tokenizer_config.json').write_text('{"add_prefix_space": true}')
  spaced = Subwords.of_folder(tmp_path)
  assert spaced.encode('the')[1] == table['Ġ']
  # Read back from a workdir, it is the same.
  spaced.save(tmp_path / 'tokenizer.json')
  assert Subwords.load(tmp_path / 'tokenizer.json').digest == spaced.digest


@pytest.mark.parametrize(
  ('names', 'said'),
  [
    ({}, f'has no tokenizer; {NEEDED}'),
    ({'vocab.json': '{}'}, 'has no tokenizer'),
    ({'vocab.txt': 'a\nb\n'}, r'vocab.txt: .*the vocabulary has no \[UNK\]'),
    ({'vocab.txt': ''}, 'vocab.txt'),
    ({'vocab.txt': '[UNK]\n[CLS]\n[SEP]\n'}, f'none of its 3 {PADDING}'),
    ({'vocab.json': '{"a": 1}', 'merges.txt': ''}, 'vocab.json.*has no <s>'),
    ({'vocab.json': '{', 'merges.txt': ''}, 'vocab.json.*merges.txt'),
    ({'vocab.txt': 'a', CONFIG: '7'}, CONFIG),
    (
      {'vocab.txt': '\n'.join(PIECES), CONFIG: '{"do_lower_case": "yes"}'},
      'vocab.txt',
    ),
  ],
)
def test_faulty_folders(tmp_path, names, said):
  for name, text in names.items():
    (tmp_path / name).write_text(text)
  with pytest.raises(DataError, match=said):
    Subwords.of_folder(tmp_path)


class Panic(BaseException):
  """Like the panic of tokenizers, this is no subclass of Exception."""


@pytest.mark.parametrize(
  'kind', [DataError, KeyboardInterrupt, MemoryError, Preempted, SystemExit]
)
def test_what_comes_from_outside_stays_as_it_is(kind):
  with pytest.raises(kind, match='^stop$'), as_data_errors('here'):
    raise kind('stop')


@pytest.mark.parametrize('kind', [Exception, OverflowError, Panic])
def test_what_the_library_raises_is_a_fault_of_the_file(kind):
  with (
    pytest.raises(DataError, match='^here: .*broken'),
    as_data_errors('here'),
  ):
    raise kind('broken')
