"""Bounds what requests can ask of a server."""

from collections.abc import Iterable
import dataclasses
import importlib.util

from xjax.core.errors import UserError

LOCAL = '127.0.0.1', '::1', 'localhost'  # addresses of this machine
_LIBRARIES = 'starlette', 'uvicorn', 'h11', 'prometheus_client'


@dataclasses.dataclass(frozen=True)
class Limits:
  body: int = 8 << 20  # the largest number of bytes of a body
  bodies: int = 256 << 20  # of all bodies that are read or wait
  documents: int = 1024  # the largest number of documents that wait
  seconds: float = 30.0  # for sending a request, and for its answer
  connections: int = 512  # the largest number of open connections
  hosts: frozenset[str] = frozenset()  # for the header Host; empty: any


def allowed_hosts(host: str, more: Iterable[str]) -> frozenset[str]:
  """Returns the names that the header Host of a request may have.

  They are `host`, the address to listen at, and `more`, where '*' allows any
  name. The result is empty if any name is allowed, as for an address that other
  machines can reach.
  """
  names = {name.lower() for name in more}
  if host not in LOCAL or '*' in names:
    return frozenset()
  return frozenset({*LOCAL, *names})


def check_installed() -> None:
  """Checks that the libraries of the server are installed."""
  missing = [x for x in _LIBRARIES if importlib.util.find_spec(x) is None]
  if missing:
    raise UserError(
      f'serving needs {", ".join(missing)}: pip install {" ".join(missing)}'
    )
