"""The errors a user's own mistake may cause; mains print them, no traceback."""


class UserError(Exception):
  """A mistake of the user's: the message says what, where and what to do."""


class DataError(UserError):
  """A fault in a user's files; one line per fault, as `file:line: what`."""


class ConfigError(UserError):
  """A config field that is unknown, of the wrong type, or impossible."""
