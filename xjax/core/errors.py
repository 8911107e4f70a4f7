"""Defines exceptions that command-line programs print without a traceback."""

import lzma
import re
import struct
import tokenize
import zipfile
import zlib

# The exceptions that can occur when a damaged JSON, .npz or .zip file is read,
# and when expected parts are taken from its contents.
DAMAGE = (
  AttributeError,
  EOFError,
  LookupError,
  MemoryError,
  OSError,
  OverflowError,
  RuntimeError,
  SyntaxError,
  TypeError,
  ValueError,
  lzma.LZMAError,
  struct.error,
  tokenize.TokenError,
  zipfile.BadZipFile,
  zlib.error,
)


# Characters that move the cursor, change the colours or the order of the text
# on a terminal, or cannot be printed. Newlines and tabs are not among them.
_CONTROLS = re.compile(
  '[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069'
  '\ud800-\udfff]'
)


def printable(text: str) -> str:
  """Escapes control characters, except newlines and tabs, for printing."""
  return _CONTROLS.sub(
    lambda match: match[0].encode('unicode_escape').decode(), text
  )


class UserError(Exception):
  """Reports a user's mistake: what is wrong, where, and what to do."""

  def __str__(self) -> str:
    return printable(super().__str__())


class DataError(UserError):
  """Reports faults in a user's files, each on a line `file:line: fault`."""


class ConfigError(UserError):
  """Reports a config field that is unknown or has an impossible value."""


class Preempted(Exception):
  """Reports that a run was asked to stop; a new start resumes the run."""


class Interrupted(Preempted, KeyboardInterrupt):
  """Reports that Ctrl-C stopped a run; a new start resumes the run."""
