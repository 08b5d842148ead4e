from . import mutants as mutants
from .mutants import Outcome as Outcome, Report as Report
