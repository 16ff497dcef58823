"""
Traps in the configuration of a master or a minion, found before they bite.

- ``model``: what a rule is, what it sees (:class:`~saltext_ha.lint.model.HostFacts`) and what it
  finds
- ``rules/``: the rules, one small function each, by what they are about
- ``cited``: lines of Salt that the rules were read from
- ``sources``: which file and line set an option, as Salt reads its files
- ``collect``: the facts of the master or minion that we run on
- ``check``: the rules applied; the answer of ``ha.lint`` and its exit code
- ``page``: docs/lint.md, made from the rules
"""
