"""
Are the masters of a group configured the same?

A *section* answers one question, in a file of its own: :mod:`.master_key`, :mod:`.access`,
:mod:`.running`, :mod:`.options`, :mod:`.roots`, :mod:`.versions`, :mod:`.clock`. Each takes
:class:`~.facts.Facts` of one master, and compares those of several. :mod:`.sections` lists them,
:mod:`.facts` exchanges only what differs, :mod:`.result` makes the answer.
"""
