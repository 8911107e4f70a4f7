"""The beginning of a text, on one line."""


def excerpt(text: str, width: int, more: str = '') -> str:
  """As many whole words as fit, without line breaks.

  A word of more than half the width is cut in two: text without spaces, such
  as Chinese, has a beginning as well.

  Args:
    text: of any length.
    width: columns at most, `more` with them.
    more: stands after it where something is left out.
  """
  words = ' '.join(text.split())
  if len(words) <= width:
    return words
  room = width - len(more)
  end = words.rfind(' ', 0, room + 1)
  return words[: end if end > room // 2 else room] + more
