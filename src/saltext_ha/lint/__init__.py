"""
Traps in the configuration of a master or a minion, found before they do harm.

- ``model``: what a rule is, what it sees (:class:`~saltext_ha.lint.model.HostFacts`) and what it
  finds
- ``rules/``: the rules, one small function each, by subject
- ``cited``: lines of Salt that the rules rest on
- ``sources``: which file and line set an option, as Salt reads its files
- ``collect``: the facts of the master or minion that we run on
- ``check``: applies the rules; the answer of ``ha.lint`` and its exit code
- ``ask``: who is asked: a minion, a master, or all masters through their engines
- ``wire``: what masters tell each other, checked as if from a stranger
- ``page``: docs/lint.md, made from the rules
"""
