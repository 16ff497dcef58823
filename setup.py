"""
All metadata is in pyproject.toml. Only README passes through here: on PyPI its links into the
checkout would lead nowhere, so they are made whole.
"""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
SOURCE = re.search(r'^Source = "(.+)"$', (HERE / "pyproject.toml").read_text("utf-8"), re.M)[1]


def whole(link: "re.Match[str]") -> str:
    """*link* into the checkout as one that leads there from anywhere."""
    kind = "raw" if link["image"] else "blob"
    return f"{link['image']}[{link['text']}]({SOURCE}/{kind}/main/{link['path']})"


LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)")

setup(
    long_description=LINK.sub(whole, (HERE / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
