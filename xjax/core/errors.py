"""Defines exceptions that command-line programs print without a traceback."""

import importlib
import lzma
import re
import struct
import tokenize
import types
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


def optional(library: str, what: str, extra: str = '') -> types.ModuleType:
  """Imports a library, or a module of one, that only some work needs.

  A UserError says how to install what is missing: the `extra` of xjax, or the
  library; or why a library that is installed cannot be loaded.
  """
  try:
    return importlib.import_module(library)
  except ModuleNotFoundError as error:
    target = f"'xjax[{extra}]'" if extra else error.name
    raise UserError(
      f'{what} needs {error.name}: pip install {target}'
    ) from error
  except (ImportError, OSError) as error:
    raise UserError(
      f'{what} needs {library}, which cannot be loaded: {error}; install the '
      "system's package that has it (Debian: libgomp1 for libgomp.so.1)"
    ) from error


class Preempted(Exception):
  """Reports that a run was asked to stop; a new start resumes the run."""


class Interrupted(Preempted, KeyboardInterrupt):
  """Reports that Ctrl-C stopped a run; a new start resumes the run."""
