"""docs/lint.md, made from the rules: ``python -m saltext_ha.lint.page > docs/lint.md``."""

from __future__ import annotations

import re
import sys

from saltext_ha.lint.cited import CitedLine
from saltext_ha.lint.model import FILES, GROUP, MASTER, MINION, Rule
from saltext_ha.lint.rules import RULES

HEAD = """\
# ha.lint: traps in the configuration

Ask before a rollout, and before the restart after a change. Each finding has a code, such as HA101;
below, each code has its reason and what to write instead.

| | |
|---|---|
| `salt-run ha.lint` | this master and, through the engine, its peers, also compared |
| `salt '*' ha.lint` | each minion its own files |
| `salt-call --local ha.lint` | the same on a minion without a master, before it is first started |

What is read are the files, as they would hold after a restart, and not what runs. Every finding
names file and line of the option; options that another file overrides do not count. An option is
looked for in the main file, in `master.d` or `minion.d` (for a proxy minion in `proxy.d` and
`proxy.d/ID`) and in what `include:` names.

**Exit status**: 2 where something could not be looked at (no engine, a peer that is away, a file
that may not be read, a rule that failed): what is unknown is never fine. Else 1 with errors or
warnings, else 0: hints (info) do not count. `salt-call` ends with 1 instead of 2, unless called
with `--retcode-passthrough`; `salt` ends with 1 when any minion did not return 0, with `--static`
never. In scripts on a master write `salt-ha lint`: `salt-run` exits 0 when an argument is mistyped.

**Leaving rules out**: `ignore=HA707,HA708`, or for good, on a master or a minion:

```yaml
ha:
  lint:
    ignore: [HA707, HA708]
```

`only=HA501,HA701` asks just these. On a master it takes no rules about minions, on a minion none
about masters. `--out=json` has all that is shown, and why:

```
{"kind": "lint", "status": "findings", "asked": ["m1", "m2"], "only": [],
 "findings": [{"code": "HA701", "severity": "warning", "on": "m1",
               "file": "/etc/salt/master", "line": 3, "option": "publish_port",
               "title": …, "detail": "m1 4505, m2 4507", "why": …, "fix": …, "versions": "all"}],
 "counts": {"error": 0, "warning": 1, "info": 0}, "ignored": 0, "unknown": {}, "retcode": 1,
 "outputter": "ha"}
```

`status` is `clean`, `findings` or `unknown`; `line` is 0 and `file` empty where the option stands
in no file. Codes stay what they are; new rules get new ones.

*Known from* names the line of Salt that a rule was read from, on the release in brackets, or the
test that shows it on a real minion. Each rule holds on the releases beside it and is silent on
others.
"""

TAIL = """\
## What no configuration tells

These traps follow from no option, so no rule finds them beforehand:

- A minion with `master_type: failover` whose key is *pending* on its first master asks that one for
  ever, and never tries the second. Where the engine syncs keys, accepting it on any master ends
  that; `ha.check_consistency only=keys` shows ids that are accepted on one master only.
- Salt 3008's cluster: after all its masters were restarted together, minions may find them closed
  until one is restarted once more; `ha.minions live=True` and `/ready` show who serves. A master
  that joins with ten thousand keys takes some twenty seconds, in which it has not all of them.

---

Made from the rules by `python -m saltext_ha.lint.page > docs/lint.md`; do not edit.
"""

TITLES = {
    FILES: "Files of masters and minions",
    MINION: "Minions",
    MASTER: "Masters",
    GROUP: "Masters compared",
}


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD]
    for about, title in TITLES.items():
        rules = [rule for rule in RULES if rule.about == about]
        parts.append(f"## {title}\n")
        parts.append("| code | severity | Salt | |\n|---|---|---|---|")
        parts += [
            f"| [{r.code}](#{r.code.lower()}) | {r.severity} | {r.versions} | {r.title} |"
            for r in rules
        ]
        parts.append("")
        parts += [_section(rule) for rule in rules]
    return "\n".join([*parts, TAIL])


def _section(rule: Rule) -> str:
    sources = "; ".join(map(_source, rule.sources))
    return (
        f"### {rule.code}\n\n"
        f"**{rule.title}** ({rule.severity}; Salt {rule.versions})\n\n"
        f"{rule.why}\n\n"
        f"→ {_plain(rule.fix)}\n\n"
        f"Known from: {sources}\n"
    )


def _plain(text: str) -> str:
    """*text* with its backslashes, and without footnotes (``[^``)."""
    return text.replace("\\", r"\\").replace("[^", r"\[^")


def _source(source: CitedLine | str) -> str:
    if isinstance(source, CitedLine):
        return source.markdown()
    return re.sub(r"\b((?:saltext_ha|tests|docs)/[\w/-]+\.\w+)", r"`\1`", source)


if __name__ == "__main__":
    sys.stdout.write(page())
