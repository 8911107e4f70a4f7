"""Bounds what requests can ask of a server."""

from collections.abc import Iterable
import dataclasses
import importlib.util

from xjax.core.errors import UserError

LOCAL = '127.0.0.1', '::1', 'localhost'  # addresses of this machine
_LIBRARIES = 'starlette', 'uvicorn', 'h11', 'prometheus_client'


@dataclasses.dataclass(frozen=True)
class Limits:
  """Bounds what requests can ask of a server.

  Attributes:
    body: int, the largest number of bytes of a body.
    bodies: int, the largest number of bytes of all bodies that are read or wait
      for an answer.
    documents: int, the largest number of documents that wait in the queue.
    seconds: the longest time for sending a request, and for its answer.
    connections: int, the largest number of open connections.
    hosts: names that the header Host may have; empty for any name.
  """

  body: int = 8 << 20
  bodies: int = 256 << 20
  documents: int = 1024
  seconds: float = 30.0
  connections: int = 512
  hosts: frozenset[str] = frozenset()


def allowed_hosts(host: str, more: Iterable[str]) -> frozenset[str]:
  """Returns the names that the header Host of a request may have.

  Args:
    host: the address to listen at.
    more: further names; '*' allows any name.

  Returns:
    The names. The result is empty if any name is allowed, as for an address
    that other machines can reach.
  """
  names = {name.lower() for name in more}
  if host not in LOCAL or '*' in names:
    return frozenset()
  return frozenset({*LOCAL, *names})


def check_installed() -> None:
  """Checks that the libraries of the server are installed.

  Raises:
    UserError: a library is missing.
  """
  missing = [x for x in _LIBRARIES if importlib.util.find_spec(x) is None]
  if missing:
    raise UserError(
      f'serving needs {", ".join(missing)}: pip install {" ".join(missing)}'
    )
