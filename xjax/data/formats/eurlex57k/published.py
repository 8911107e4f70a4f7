"""Compares documents and concepts with those of the published EURLEX57K.

Chalkidis et al. 2019 publish the counts, but no digests. The digests here are
from a copy of the splits train and dev and of the concepts. The ids of the
split test are not known here, so only its documents are counted.
"""

from collections.abc import Collection, Mapping
import dataclasses
import hashlib

CONCEPTS = 'concepts'


@dataclasses.dataclass(frozen=True)
class _Part:
  """Holds a number of ids, and the digest of the sorted ids if it is known."""

  count: int
  digest: str = ''


PUBLISHED = {
  'train': _Part(
    45_000, '5ed5aa7a2461920da3f218a165eb06891ae6dfd4b13b2da8bdcb88d2a25ceae5'
  ),
  'dev': _Part(
    6_000, '15642ec3aef79c9e5b81ef4bc9a336e3d7821cd436037ce7d46fd1a4eb45a833'
  ),
  'test': _Part(6_000),
  CONCEPTS: _Part(
    7_201, 'b7d763357c5768bf5dd3fd7fbc2e6ad2f24199e75800997b2eaee3e9eaba01d7'
  ),
}


def differences(ids: Mapping[str, Collection[str]]) -> list[str]:
  """Returns what differs from the published data; empty if nothing does.

  `ids` has those of documents by split, and those of concepts under CONCEPTS.
  """
  faults = []
  for name, part in ids.items():
    if name not in PUBLISHED:
      continue
    expected = PUBLISHED[name]
    if len(part) != expected.count:
      faults.append(f'{name} has {len(part):,} ids, not {expected.count:,}')
    elif expected.digest and _digest(part) != expected.digest:
      faults.append(f'{name} has other ids')
  return faults


def _digest(ids: Collection[str]) -> str:
  """Returns the SHA-256 of the sorted ids, one per line."""
  return hashlib.sha256('\n'.join(sorted(ids)).encode()).hexdigest()
