from .steps import (
    Audit as Audit,
    Row as Row,
    artifacts as artifacts,
    audit as audit,
    load as load,
    shown as shown,
    summary as summary,
)
