"""The environment in which the statements of a tie file are elaborated."""

from __future__ import annotations

from obligations.lean import Environment
from obligations.ops import environment
from obligations.statements.net_names import net_entries
from obligations.statements.tie_file import Derived


def typed_environment(derived: Derived) -> Environment:
    """The environment with the library's names, the net's and the file's own declarations."""
    env = environment(net_entries(derived.net))
    for obligation in derived.obligations:
        env.add(obligation.declaration)
    return env
