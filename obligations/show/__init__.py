"""Pictures and pages.

Beside each site of a block's forward, which runs from top to bottom, stands the cotangent there,
the backward running from bottom to top, and beside each cotangent the parameters whose gradient
nodes read it: where the render is right, a layer, its cotangent and its parameters are in one row,
or in the row that the sum after the layer points to. What differs from the derivative of the
forward is drawn in red, dashed, and with a cross that says what it should be.

It may import everything but `commands`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
