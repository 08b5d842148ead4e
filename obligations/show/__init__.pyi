from . import page as page
from .model import (
    Edge as Edge,
    Gradient as Gradient,
    Picture as Picture,
    Row as Row,
    Value as Value,
    picture as picture,
    pictures as pictures,
)
from .page import Chapter as Chapter, net_chapter as net_chapter
from .svg_drawing import STYLE as STYLE, clean as clean, legend as legend, svg as svg
from .text_drawing import text as text
