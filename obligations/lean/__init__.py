"""The Lean language: terms, printing, reading, scoping, typing, core form, the Lean process.

In come Lean text, terms and signatures; out go terms, text, types, and what Lean answers. It
knows no net and no operation.

It may import `errors`, `resources`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
