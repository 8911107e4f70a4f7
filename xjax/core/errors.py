"""Exceptions that command-line programs print without a traceback."""

import lzma
import struct
import tokenize
import zipfile
import zlib

# The exceptions that can occur when a damaged JSON, .npz or .zip file is read,
# and when expected parts are taken from its contents.
DAMAGE = (
  AttributeError,
  EOFError,
  IndexError,
  KeyError,
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


class UserError(Exception):
  """A mistake of the user; the message says what, where and what to do."""


class DataError(UserError):
  """A fault in a user's files; one line per fault, as `file:line: fault`."""


class ConfigError(UserError):
  """A config field that is unknown, of the wrong type, or impossible."""


class Preempted(Exception):
  """A run was asked to stop; starting it again resumes it."""
