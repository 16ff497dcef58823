"""
No Python that is installed calls anything of ours deprecated.

What is called is seen wherever a test calls it (``filterwarnings`` in pyproject.toml); here are the
words of the compiler, and the names that later Pythons take away.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = ("src", "lab", "proving", "tests")

# Gone in 3.12, 3.13 or 3.14, or deprecated there and going.
GOING = """
aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis
nntplib ossaudiodev pipes pkg_resources smtpd sndhdr spwd sunau telnetlib uu xdrlib
asyncio.get_child_watcher asyncio.set_child_watcher asyncio.get_event_loop
asyncio.set_event_loop_policy asyncio.get_event_loop_policy asyncio.iscoroutinefunction
ast.Num ast.Str ast.Bytes ast.NameConstant collections.abc.ByteString
datetime.utcnow datetime.utcfromtimestamp datetime.datetime.utcnow
datetime.datetime.utcfromtimestamp importlib.abc.Traversable inspect.getargspec
locale.getdefaultlocale pkgutil.find_loader pkgutil.get_loader
sqlite3.version ssl.match_hostname ssl.wrap_socket
"""


def used(tree: ast.AST) -> set[str]:
    """Modules that *tree* imports, and dotted names that it uses."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


def warned_of(path: Path) -> str:
    """What the compiler says of a file, or which names in it are going; empty if nothing."""
    with warnings.catch_warnings():
        # Only what it can say: the garbage of another test may be collected in here.
        warnings.simplefilter("error", SyntaxWarning)
        warnings.simplefilter("error", DeprecationWarning)
        try:
            tree = compile(path.read_text("utf-8"), str(path), "exec", ast.PyCF_ONLY_AST)
            compile(tree, str(path), "exec")
        except (SyntaxError, Warning) as exc:
            return repr(exc)
    return " ".join(sorted(used(tree) & {*GOING.split()}))


@pytest.mark.parametrize("folder", OURS)
def test_the_compiler_warns_of_nothing(folder: str) -> None:
    """A thousand files: with a test for each, most of the time would go into tests."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert len(files) > 20
    assert {path: said for path in files if (said := warned_of(path))} == {}


def test_what_is_looked_for_is_found() -> None:
    source = "import cgi\nfrom asyncio import get_event_loop\ndatetime.datetime.utcnow()\n"
    assert used(ast.parse(source)) & {*GOING.split()} == {
        "cgi",
        "asyncio.get_event_loop",
        "datetime.datetime.utcnow",
    }


def test_a_deprecation_in_our_code_is_an_error() -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
