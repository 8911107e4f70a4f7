"""What mains print without a traceback: a user's own mistake, and a stop."""

import lzma
import struct
import tokenize
import zipfile
import zlib

# All that reading a damaged file as JSON, .npz or .zip may raise, and taking
# from it what should be there.
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
  """A mistake of the user's: the message says what, where and what to do."""


class DataError(UserError):
  """A fault in a user's files; one line per fault, as `file:line: what`."""


class ConfigError(UserError):
  """A config field that is unknown, of the wrong type, or impossible."""


class Preempted(Exception):
  """A run was asked to stop; starting it again resumes it."""
