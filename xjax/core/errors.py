"""Defines exceptions that command-line programs print without a traceback."""

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
  """Reports a mistake of the user.

  The message says what is wrong, where it is wrong, and what to do.
  """


class DataError(UserError):
  """Reports faults in a user's files.

  The message has one line per fault, of the form `file:line: fault`.
  """


class ConfigError(UserError):
  """Reports a config field that is unknown or has an impossible value."""


class Preempted(Exception):
  """Reports that a run was asked to stop; a new start resumes the run."""


class Interrupted(Preempted, KeyboardInterrupt):
  """Reports that Ctrl-C stopped a run; a new start resumes the run."""
