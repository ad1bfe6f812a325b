"""A covariance as an upper triangle, P = T'T: samples, rank-one changes, wider variances.

Only the triangle is read, so a pass is half of a full matrix, and P stays a covariance whatever is
rounded. All loops run along rows, as these are vectorised: a number of the result is computed in
the same order of operations with and without vectors. Four rows are passed at a time, as T does not
stay in the cache in a large pool, and loads and stores take longer than the arithmetic.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.scratch_arrays import borrow_row
from bylot.numerics.simd import SIMD_WIDTH, load_inside, store_inside

MIN_PIVOT = 1e-12  # variance that counts as 0
COLUMN_BLOCK = 256  # columns of a pass over several samples

FourFloats = tuple[float, float, float, float]


@jit
def fill_cholesky_root(root: Floats, P: Floats) -> None:
    """Write T (Cholesky) in O(K^3), row by row; P is used up."""
    K = P.shape[0]
    for k in range(K):
        pivot = math.sqrt(max(P[k, k], MIN_PIVOT))
        for i in range(K):
            root[k, i] = P[k, i] / pivot if i > k else 0.0
        root[k, k] = pivot
        for i in range(k + 1, K):
            for j in range(K):
                P[i, j] -= root[k, i] * root[k, j]


@jit
def add_root_samples(out: Floats, root: Floats, z: Floats) -> None:
    """out_n += T'z_n for every row z_n: one pass over T for all samples, four rows at a time.

    Several samples are computed in blocks of columns that stay in the cache, five at a time, which
    share what is loaded of T. Each has the same bits as if it were computed alone.
    """
    K, N = root.shape[0], z.shape[0]
    width, fives = COLUMN_BLOCK if N > 1 else max(K, 1), N - N % 5
    for first in range(0, K, width):
        last = min(first + width, K)
        for k in range(0, last - last % 4, 4):
            start = max(first, k)
            if start == k:
                start = max(start - count_short(last - start), first)
            for n in range(0, fives, 5):
                a, b, c, d, e = borrow_five(z, n)
                u, v, w = take_four(a, k), take_four(b, k), take_four(c, k)
                fours = u, v, w, take_four(d, k), take_four(e, k)
                add_four_rows(borrow_five(out, n), root, fours, k, start, last)
            for n in range(fives, N):
                fours_of_one = (take_four(borrow_row(z, n), k),)
                add_four_rows((borrow_row(out, n),), root, fours_of_one, k, start, last)
        for k in range(last - last % 4, last):
            start = max(first, k)
            for n in range(N):
                for i in range(start, last):
                    out[n, i] += z[n, k] * root[k, i]


@jit
def count_short(columns: int) -> int:
    """How many columns are missing to a multiple of SIMD_WIDTH. Loops begin as many further left,
    where a triangle has zeros, which change nothing, rather than end with single numbers.
    """
    return -columns % SIMD_WIDTH


@jit
def take_four(z: Floats, k: int) -> FourFloats:
    """Four numbers from place k on."""
    return z[k], z[k + 1], z[k + 2], z[k + 3]


@jit
def combine_four(a: Any, b: Any, c: Any, d: Any, z: FourFloats) -> Any:
    """z_0 a + z_1 b + z_2 c + z_3 d, of numbers or of `Lanes`."""
    return (a * z[0] + b * z[1]) + (c * z[2] + d * z[3])


@jit
def add_four_rows(out: Any, root: Floats, z: Any, k: int, start: int, last: int) -> None:
    """out_n += z_nk T_k + ... + z_n(k + 3) T_(k + 3) in the columns from start to last, for tuples
    of as many samples as share what is loaded of T.
    """
    a, b, i = borrow_row(root, k), borrow_row(root, k + 1), start
    c, d = borrow_row(root, k + 2), borrow_row(root, k + 3)
    while i <= last - SIMD_WIDTH:
        A, B, C, D = load_inside(a, i), load_inside(b, i), load_inside(c, i), load_inside(d, i)
        for n in range(len(out)):
            more = combine_four(A, B, C, D, z[n])
            store_inside(out[n], i, load_inside(out[n], i) + more)
        i += SIMD_WIDTH
    while i < last:
        for n in range(len(out)):
            out[n][i] += combine_four(a[i], b[i], c[i], d[i], z[n])
        i += 1


@jit
def borrow_five(out: Floats, n: int) -> Any:
    """Five rows from row n on."""
    a, b, c = borrow_row(out, n), borrow_row(out, n + 1), borrow_row(out, n + 2)
    return a, b, c, borrow_row(out, n + 3), borrow_row(out, n + 4)


@jit
def fill_root_product(w: Floats, root: Floats, places: Ints, values: Floats) -> float:
    """Write w = T x of the vector x with these values at these places; returns x'Px = w.w."""
    top, total = 0, 0.0
    for k in range(w.size):
        w[k] = 0.0
    for n in range(places.size):
        i = places[n]
        top = max(top, i + 1)
        for k in range(i + 1):
            w[k] += values[n] * root[k, i]
    for k in range(top):
        total += w[k] * w[k]
    return total


@jit
def reduce_root(Px: Floats, root: Floats, w: Floats, factor: float, kept: float) -> None:
    """P -= factor P x x'P with w = T x and kept = 1 - factor w.w > 0; writes P x.

    Rotations of rows of T with one more row of zeros, from the last row up, which turn that one
    into sqrt(factor) (P x)' (Gill, Golub, Murray and Saunders, "Methods for modifying matrix
    factorizations", 1974). With l_K^2 = kept and l_k^2 = l_(k + 1)^2 + factor w_k^2, that row is
    sqrt(factor) s / l_(k + 1) before the rotation with T_k, where s = sum_{j > k} w_j T_j. So

    T_k <- (l_(k + 1) / l_k) T_k - factor w_k / (l_k l_(k + 1)) s,  s <- s + w_k T_k (the old one)

    and P x is the last s. Four rows at a time: s is loaded and stored once for all of them.
    """
    length = math.sqrt(kept)
    for i in range(w.size):
        Px[i] = 0.0
    k = find_four_turned(w, w.size - 4)
    turns = find_four_turns(w, k, factor, length)
    while k >= 0:
        length, now, then = turns[3].length, k, turns
        k = find_four_turned(w, k - 4)
        turns = find_four_turns(w, k, factor, length)  # takes long, and needs nothing of the rows
        first, second = borrow_row(root, now + 3), borrow_row(root, now + 2)
        rows = first, second, borrow_row(root, now + 1), borrow_row(root, now)
        turn_rows(Px, rows, then, max(now - count_short(w.size - now), 0))
    for k in range(w.size % 4 - 1, -1, -1):
        turn = find_turn(w[k], factor, length)
        turn_rows(Px, (borrow_row(root, k),), (turn,), k)
        length = turn.length


class Turn(NamedTuple):
    """A rotation of a row T_k with the row added to T."""

    length: float  # l_k
    kept: float  # of the row, l_(k + 1) / l_k
    taken: float  # of s, factor w_k / (l_k l_(k + 1))
    weight: float  # w_k, of the row in s


FourTurns = tuple[Turn, Turn, Turn, Turn]


@jit
def find_turn(weight: float, factor: float, before: float) -> Turn:
    """The rotation of a row with this w_k, where l_(k + 1) = before."""
    length = math.sqrt(before * before + factor * weight * weight)
    return Turn(length, before / length, factor * weight / (length * before), weight)


@jit
def find_four_turned(w: Floats, k: int) -> int:
    """The first of the next four rows from place k up that have to be turned; negative if none."""
    while k >= 0 and w[k] == 0.0 and w[k + 1] == 0.0 and w[k + 2] == 0.0 and w[k + 3] == 0.0:
        k -= 4
    return k


@jit
def find_four_turns(w: Floats, k: int, factor: float, before: float) -> FourTurns:
    """The rotations of the rows k + 3, k + 2, k + 1 and k, in this order; none if k is negative."""
    if k < 0:
        none = Turn(before, 1.0, 0.0, 0.0)
        return none, none, none, none
    t = find_turn(w[k + 3], factor, before)
    u = find_turn(w[k + 2], factor, t.length)
    v = find_turn(w[k + 1], factor, u.length)
    return t, u, v, find_turn(w[k], factor, v.length)


@jit
def turn_row(row: Any, s: Any, turn: Turn) -> Any:
    """The row and s after a rotation, numbers or `Lanes`."""
    return row * turn.kept - s * turn.taken, s + row * turn.weight


@jit
def turn_rows(s: Floats, rows: Any, turns: Any, start: int) -> None:
    """Rotate each row of a tuple by its turn, in this order, in the columns from start on."""
    i = start
    while i <= s.size - SIMD_WIDTH:
        S = load_inside(s, i)
        for n in range(len(rows)):
            A, S = turn_row(load_inside(rows[n], i), S, turns[n])
            store_inside(rows[n], i, A)
        store_inside(s, i, S)
        i += SIMD_WIDTH
    while i < s.size:
        for n in range(len(rows)):
            rows[n][i], s[i] = turn_row(rows[n][i], s[i], turns[n])
        i += 1


@jit
def rotate_rows(a: Floats, b: Floats, c: float, s: float) -> None:
    """(a, b) = (c a + s b, c b - s a)."""
    for i in range(a.size):
        turned = c * a[i] + s * b[i]
        b[i] = c * b[i] - s * a[i]
        a[i] = turned


@jit
def compute_variances(root: Floats) -> Floats:
    """The diagonal of P."""
    found = np.zeros(root.shape[0])
    for k in range(found.size):
        row = borrow_row(root, k)
        for i in range(found.size):
            found[i] += row[i] * row[i]
    return found


@jit
def scale_root(root: Floats, factors: Floats) -> None:
    """S P S with S = diag(factors)."""
    for k in range(factors.size):
        row = borrow_row(root, k)
        for i in range(factors.size):
            row[i] *= factors[i]


@jit
def raise_variance(root: Floats, place: int, variance: float) -> None:
    """Add independent noise to one number, so that it has this variance if it had less."""
    K, known = root.shape[0], 0.0
    for k in range(place + 1):
        known += root[k, place] * root[k, place]
    if known >= variance:
        return
    added = np.zeros(K)
    added[place] = math.sqrt(variance - known)
    for k in range(place, K):  # rotations of the rows of T with the added one
        length = math.sqrt(root[k, k] * root[k, k] + added[k] * added[k])
        rotate_rows(root[k, k:], added[k:], root[k, k] / length, added[k] / length)
