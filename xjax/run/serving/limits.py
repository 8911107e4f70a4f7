"""Bounds what requests can ask of a server."""

import dataclasses
import importlib.util

from xjax.core.errors import UserError

_LIBRARIES = 'starlette', 'uvicorn', 'h11', 'prometheus_client'


@dataclasses.dataclass(frozen=True)
class Limits:
  """Bounds what requests can ask of a server.

  Attributes:
    body: int, the largest number of bytes of a body.
    bodies: int, the largest number of bytes of all bodies that are being read.
    documents: int, the largest number of documents that wait in the queue.
    seconds: the longest time for sending a request, and for its answer.
    connections: int, the largest number of open connections.
  """

  body: int = 8 << 20
  bodies: int = 256 << 20
  documents: int = 1024
  seconds: float = 30.0
  connections: int = 512


def check_installed() -> None:
  """Checks that the libraries of the server are installed.

  Raises:
    UserError: a library is missing.
  """
  missing = [x for x in _LIBRARIES if importlib.util.find_spec(x) is None]
  if missing:
    raise UserError(
      f'serving needs {", ".join(missing)}: pip install "xjax[serve]"'
    )
