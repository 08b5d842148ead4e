"""The environment in which the statements of a tie file are elaborated."""

from __future__ import annotations

from obligations.lean import Environment
from obligations.ops import environment
from obligations.statements.net_names import net_entries
from obligations.statements.tie_file import Derived


def declare_all(env: Environment, derived: Derived) -> None:
    """Elaborate every declaration of the file in order; raises where one does not fit."""
    for obligation in derived.obligations:
        d = obligation.declaration
        env.declare(d.name, d.binders, d.type, d.value)


def typed_environment(derived: Derived) -> Environment:
    """The environment with the library's names, the net's and the file's own declarations."""
    env = environment(net_entries(derived.net))
    declare_all(env, derived)
    return env
