"""Models of texts in all alphabets, and in each form of Unicode."""

import logging
import random
import unicodedata

import pytest

import xjax
from xjax.data.tokens_config import Analyzer, TfidfConfig
from xjax.models.contract import load_config
from xjax.run.named_configs import named_config

WORDS, CHARACTERS = Analyzer.WORDS, Analyzer.CHARACTERS


def corpus(words, others, space):
  """Returns texts whose label is decided by one word, and their labels."""
  words, others = words.split(), others.split()
  texts, labels, rng = [], [], random.Random(0)
  for row in range(160):
    chosen = rng.choices(others, k=8)
    chosen.insert(rng.randrange(9), words[row % len(words)])
    texts.append(space.join(chosen))
    labels.append([f'l{row % len(words)}'])
  return texts, labels


HINDI = 'दिन दान दीन दून', 'और है में का यह घर पानी बात लोग', ' '
CHINESE = '经济 法律 体育 医学', '我们 今天 可以 这个 时间 问题 大家 中国', ''
JAPANESE = (
  'ねこ いぬ とり うま',
  'これは です 昨日 東京 が を 食べる 人 コーヒー',
  '',
)
THAI = 'แมว หมา นก ปลา', 'วันนี้ เขา ไป บ้าน กิน น้ำ และ ที่ คน', ''
KHMER = 'ឆ្កែ ឆ្មា ត្រី សេះ', 'ខ្ញុំ នៅ ផ្ទះ ទៅ ញ៉ាំ បាយ', ''
ARABIC = 'عِلْم عَلَم عَالِم عُلُوم', 'هُوَ فِي كِتَاب بَيْت مِنْ رَجُل', ' '
PERSIAN = 'می‌روم می‌خورم می‌بینم می‌دانم', 'من خانه امروز با', ' '
KOREAN = '말 물 불 발', '나는 오늘 집에 갔다 그리고', ' '
FRENCH = 'été étang échelle école', 'le la un dans avec pour', ' '
YORUBA = 'ọkọ́ ọkọ̀ ọkọ ọ̀kọ̀', 'ni ti ati fún náà', ' '


@pytest.mark.parametrize(
  ('given', 'analyzer'),
  [
    (HINDI, WORDS),
    (CHINESE, CHARACTERS),
    (JAPANESE, CHARACTERS),
    (THAI, CHARACTERS),
    (KHMER, CHARACTERS),
    (ARABIC, WORDS),
    (PERSIAN, WORDS),
    (KOREAN, WORDS),
    (FRENCH, WORDS),
    (YORUBA, WORDS),
  ],
)
def test_one_word_decides_the_label(given, analyzer):
  texts, labels = corpus(*given)
  decomposed = [unicodedata.normalize('NFD', text) for text in texts]
  model = xjax.fit(decomposed[:120], labels[:120], verbose=False)
  tokens = model.config.data.tokens
  assert tokens.analyzer is analyzer
  assert tokens.max_ngram == (4 if analyzer is CHARACTERS else 1)
  lists = model.predict(texts[120:], k=2)
  assert lists == model.predict(decomposed[120:], k=2)
  best = [[one.id] for one, *_ in lists]
  assert best == labels[120:]
  # The words of an explanation are those of the text as it is given.
  words = unicodedata.normalize('NFD', given[0]).split()
  some = decomposed[120::9]
  for text, [label] in zip(some, model.explain(some, 1, 1)):
    (why,) = label.why
    assert text[slice(*why.at)] == why.word
    assert why.word in words[int(label.id[1])]


def test_a_run_on_characters_is_said_saved_and_resumed(tmp_path, caplog):
  texts, labels = corpus(*THAI)
  with caplog.at_level(logging.INFO, logger='absl'):
    model = xjax.fit(texts, labels, workdir=tmp_path / 'run')
  assert (
    'over TF-IDF of 1 to 4 characters, since most words are in scripts without '
    'spaces'
  ) in caplog.text
  saved = load_config(tmp_path / 'run' / 'config.json').data.tokens
  assert saved == TfidfConfig(max_ngram=4, analyzer=CHARACTERS)
  again = xjax.fit(texts, labels, workdir=tmp_path / 'run', verbose=False)
  model.save(tmp_path / 'saved')
  for other in again, xjax.load(tmp_path / 'saved'):
    assert other.predict(texts[:9], k=3) == model.predict(texts[:9], k=3)


@pytest.mark.lightgbm
def test_stacks_explain_by_the_words_around_characters():
  texts, labels = corpus(*HINDI)
  config = named_config('own_best')
  tokens = TfidfConfig(analyzer=CHARACTERS, min_ngram=2, max_ngram=4)
  for part in config.data, *config.model.proposers:
    if isinstance(part.tokens, TfidfConfig):
      part.tokens = tokens
  model = xjax.fit(texts[:120], labels[:120], config=config, verbose=False)
  for [label], (id_,) in zip(
    model.explain(texts[120:128], 1, 1), labels[120:128]
  ):
    assert label.id == id_
    assert label.why[0].word == HINDI[0].split()[int(id_[1])]


@pytest.mark.parametrize(
  'name', ['Santé\xa0 publique', 'Sante\u0301\u200b  publique']
)
def test_labels_are_names_in_one_form(name):
  texts, labels = corpus(*FRENCH)
  for row in range(0, 160, 4):
    labels[row] = ['Santé publique'] if row % 8 else [name, 'Santé publique']
  model = xjax.fit(texts, labels, verbose=False)
  assert list(model.labels.ids) == ['Santé publique', 'l1', 'l2', 'l3']
  gold = [[name] if ids[0] not in model.labels.ids else ids for ids in labels]
  metrics = model.evaluate(texts, gold)
  assert metrics['all']['P@1'] == 1
