"""
One file for each ``ha.*`` command, by subject: takes its collaborators, returns plain data.

What all of them share is here: ``engine_client`` (how a runner asks the engine of its master),
``runner_arguments`` (what Salt makes of what was typed), ``arguments`` (what they mean),
``background`` (work that takes longer than an answer may). A file ``…_runner`` is the half of a
command that runs in the runner.
"""
