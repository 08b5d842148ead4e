from . import units as units
from .junit_xml import junit as junit
from .results import Result as Result
from .units import Progress as Progress, Work as Work
