from . import tie_file as tie_file
from .docs import listed as listed, spatial as spatial, title as title, written as written
from .tie_file import replace_file as replace_file
