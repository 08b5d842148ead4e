"""How net descriptions are read, in the order a text goes through it.

``text`` is the syntax and ``parse`` makes it from a text; ``chain``, ``sites`` and ``block`` find
what one block's names mean, and ``resolve`` the whole net. :mod:`~obligations.description.reader`
is the door.
"""
