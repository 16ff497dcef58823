"""
Which text may be a name that masters tell each other; and what others say, fit to be shown.

What may be a name is the same on every Python: ``str.isprintable`` goes by the Unicode tables of
the interpreter, and Python 3.11 knows characters that 3.10 does not. If names went by it, one
master could record an id that another refuses for ever. What is only shown goes by it.
"""

from __future__ import annotations

import re

# As in Unicode 15: control and formatting characters, surrogates, characters for private use, and
# spaces other than " ". What is no character yet is taken, because a newer Python may print it.
_REFUSED = (
    "\\x00-\\x1f\\x7f-\\xa0\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u1680\\u180e"
    "\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ud800-\\uf8ff\\ufdd0-\\ufdef\\ufeff"
    "\\ufff0-\\ufffb\\U000110bd\\U000110cd\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3"
    "\\U0001d173-\\U0001d17a\\U000e0000-\\U000e00ff\\U000e01f0-\\U000e0fff\\U000f0000-\\U0010ffff"
)
# The last two of each plane are no characters, and will be none.
_NONE = "".join(f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(15))
_UNPRINTABLE = re.compile(f"[{_REFUSED}{_NONE}]")


def is_printable(text: str) -> bool:
    """Whether nothing in *text* is invisible, or changes how the rest is shown."""
    if text.isascii():  # alike on every Python, and much faster
        return text.isprintable()
    return _UNPRINTABLE.search(text) is None


def harmless(text: str) -> str:
    """What somebody else said, for logs and terminals: what would control them becomes ``?``."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
