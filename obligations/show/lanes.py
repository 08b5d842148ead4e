"""Which track an edge takes beside a column of boxes, so that no two run over each other."""

from __future__ import annotations

from collections.abc import Sequence


def lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """A track for each edge from place ``a`` to place ``b`` of a column, 0 the nearest.

    Shorter edges are nearer. Edges from one place may share a track, as one line that forks;
    others share one only where they have no place in common.
    """
    order = sorted(range(len(spans)), key=lambda i: (abs(spans[i][0] - spans[i][1]), spans[i]))
    taken: list[list[tuple[int, int]]] = []
    out = [0] * len(spans)
    for i in order:
        free = (n for n, used in enumerate(taken) if not any(_collide(spans[i], u) for u in used))
        track = next(free, len(taken))
        if track == len(taken):
            taken.append([])
        taken[track].append(spans[i])
        out[i] = track
    return out


def _collide(a: tuple[int, int], b: tuple[int, int]) -> bool:
    if a[0] == b[0] and (a[1] > a[0]) == (b[1] > b[0]):
        return False
    return max(min(a), min(b)) <= min(max(a), max(b))
