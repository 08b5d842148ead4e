"""How many threads linear algebra uses: one, so that the same call gives the same digits."""

import os

LIBRARIES = ("OPENBLAS", "MKL", "OMP")


def one_thread() -> None:
    """Have NumPy's libraries use one thread where they are not loaded yet.

    The number of threads changes the order of a sum and with it the last digits: a row would not
    come out the same in this process and in another. On matrices of the sizes met here more
    threads are not faster either, and on a busy machine several times slower. Whoever sets
    ``OPENBLAS_NUM_THREADS`` (``MKL_``, ``OMP_``) is obeyed.
    """
    for library in LIBRARIES:
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
