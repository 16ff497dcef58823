"""Masters that have the tree ``states``, with a source and a live folder of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.engines import Engine, Place
from tests.disk_steps import Files, put
from tests.engines import QUICK, run
from tests.forked import ForkedEngine
from tests.loop import until

STATES = {"top.sls": "base: {}\n", "nginx/init.sls": "nginx: pkg.installed\n"}


class TreePlace(Place):
    """Such a master."""

    @property
    def source(self) -> Path:
        return self.root / "trees" / self.name / "source"

    @property
    def live(self) -> Path:
        return self.root / "trees" / self.name / "live"

    @property
    def store(self) -> Path:
        """What it keeps beside the live folder."""
        return self.live.with_name(".live.ha")

    @property
    def versions(self) -> Path:
        return self.store / "versions"

    @property
    def copies(self) -> list[Path]:
        """The whole copies of contents."""
        return [*(self.store / "pristine").glob("[0-9a-f]" * 64)]

    def count(self) -> int:
        """How many versions there are."""
        return sum(path.is_dir() for path in self.versions.iterdir())

    def put(self, files: Files) -> None:
        """Write *files* into the source."""
        put(self.source, files)

    def served(self) -> Files:
        """What Salt would read there: of one version, also while another takes its place."""
        top = self.live.resolve()
        files = [path for path in sorted(top.rglob("*")) if path.is_file()]
        return {str(path.relative_to(top)): path.read_text() for path in files}

    async def run(self, function: str, *args: Any, **options: Any) -> dict[str, Any]:
        return await run(self, function, *args, **options)

    async def deploy(self, *trees: str, **options: Any) -> dict[str, Any]:
        return await self._done("deploy", *trees, **options)

    async def rollback(self, *args: Any, **options: Any) -> dict[str, Any]:
        return await self._done("rollback", *args, **options)

    async def _done(self, function: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = await self.run(function, *args, **options)
        assert answer["retcode"] == 0, answer
        return answer

    async def refused(self, function: str, *args: Any, **options: Any) -> str:
        """Why it fails."""
        answer = await self.run(function, *args, **options)
        assert answer["retcode"] == 2, answer
        return str(answer["error"])

    async def shown(self) -> dict[str, Any]:
        """The row of its tree in ``ha.deployments``, and the exit code."""
        answer = await self.run("deployments")
        (row,) = answer["trees"]
        return {**row, "retcode": answer["retcode"]}

    async def kept(self) -> list[int]:
        """The numbers of the deployments that it can go back to."""
        return [row["number"] for row in (await self.shown())["deployments"]]


def tree_place(
    root: Path,
    name: str,
    *,
    files: Files = STATES,
    options: Mapping[str, Any] | None = None,
    **tree: Any,
) -> TreePlace:
    """
    A master whose source has *files*.

    :param options: keys for its master configuration.
    :param tree: what is set for the tree besides.
    """
    top = root / "trees" / name
    put(top / "source", files)
    (top / "source").mkdir(parents=True, exist_ok=True)
    states = {"source": str(top / "source"), "live": str(top / "live"), **tree}
    return TreePlace(root, name, {**QUICK, "trees": {"states": states}}, options or {})


def pair(
    root: Path, *, files: Files = STATES, own: Mapping[str, Any] | None = None, **tree: Any
) -> tuple[TreePlace, TreePlace]:
    """
    The masters m1, whose source has *files*, and m2.

    :param own: master → what is set for its tree beside *tree*.
    """
    own = own or {}
    return (
        tree_place(root, "m1", files=files, **{**tree, **own.get("m1", {})}),
        tree_place(root, "m2", files={}, **{**tree, **own.get("m2", {})}),
    )


def several_trees(root: Path, name: str, *trees: str) -> TreePlace:
    """A master that has these trees instead; ``who`` in each of their sources holds its name."""
    top = root / "trees" / name
    for tree in trees:
        put(top / tree, {"who": name})
    made = {tree: {"source": f"{top / tree}", "live": f"{top}/live-{tree}"} for tree in trees}
    return TreePlace(root, name, {**QUICK, "trees": made})


def waiting(go: Path, only: str = ".") -> str:
    """A ``check:`` that ends once *go* is there; at once for a version without the file *only*."""
    return f"sh -c 'test ! -e {only} || while [ ! -e {go} ]; do sleep 0.05; done'"


def carried_out(engine: ForkedEngine, command: str = "deploy", **options: Any) -> dict[str, Any]:
    """What it is answered, on a master of its own process. :raises HaError: it failed."""
    return answer_of(engine, engine.control(command, {"by": "root", **options})["job"])


def answer_of(engine: ForkedEngine, job: str) -> dict[str, Any]:
    """The same, once it is begun."""
    while "answer" not in (found := engine.control("deploy_progress", {"job": job})):
        pass
    return dict(found["answer"])


async def tidied(engine: Engine) -> None:
    """Wait until no files come and go any more beside the versions, after a deployment."""
    place = engine.place
    assert isinstance(place, TreePlace)
    spare = place.store / "staging" / f"{place.live.resolve().name}.spare"
    await until(lambda: spare.is_dir() and not engine.parts.core._tasks, "it is tidied")
