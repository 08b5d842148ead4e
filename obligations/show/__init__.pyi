from . import page as page
from .model import Picture as Picture, picture as picture, pictures as pictures
from .page import Chapter as Chapter, net_chapter as net_chapter
from .svg_drawing import svg as svg
from .text_drawing import text as text
