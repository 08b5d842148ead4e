"""Pictures of a block: its forward on the left, its cotangents on the right, row by row.

The forward runs from top to bottom. Beside each site stands the cotangent there, the backward
running from bottom to top, and beside each cotangent the parameters whose gradient nodes read it:
where the render is right, a layer, its cotangent and its parameters are in one row, or in the row
that the sum after the layer points to. What differs from the derivative of the forward is drawn in
red, dashed, and with a cross that says what it should be.
"""

from obligations.show.model import Edge, Gradient, Picture, Row, Value, picture, pictures
from obligations.show.svg import STYLE, clean, legend, svg
from obligations.show.text import text

__all__ = [
    "STYLE",
    "Edge",
    "Gradient",
    "Picture",
    "Row",
    "Value",
    "clean",
    "legend",
    "picture",
    "pictures",
    "svg",
    "text",
]
