"""A covariance as an upper triangle, P = T'T: samples, rank-one changes, wider variances.

Only the triangle is read, so a pass is half of a full matrix, and P stays a covariance whatever is
rounded. All loops run along rows, as these are vectorised.
"""

import math

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit

MIN_PIVOT = 1e-12  # variance that counts as 0
COLUMN_BLOCK = 256  # columns of a pass over several samples


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
    """out_n += T'z_n for every row z_n: one pass over T for all samples, in blocks of columns that
    stay in the cache, four rows at a time.
    """
    K = root.shape[0]
    for first in range(0, K, COLUMN_BLOCK):
        last = min(first + COLUMN_BLOCK, K)
        for k in range(0, last - last % 4, 4):
            start = max(first, k)
            a, b = root[k, start:last], root[k + 1, start:last]
            c, d = root[k + 2, start:last], root[k + 3, start:last]
            for n in range(z.shape[0]):
                one = out[n, start:last]
                add_four_rows(one, a, b, c, d, z[n, k : k + 4])
        for k in range(last - last % 4, last):
            start = max(first, k)
            for n in range(z.shape[0]):
                for i in range(start, last):
                    out[n, i] += z[n, k] * root[k, i]


@jit
def add_four_rows(out: Floats, a: Floats, b: Floats, c: Floats, d: Floats, z: Floats) -> None:
    """out += z_0 a + z_1 b + z_2 c + z_3 d."""
    u, v, w, x = z[0], z[1], z[2], z[3]
    for i in range(out.size):
        out[i] += (u * a[i] + v * b[i]) + (w * c[i] + x * d[i])


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
    factorizations", 1974).
    """
    K, scale, length = w.size, math.sqrt(factor), math.sqrt(kept)
    for i in range(K):
        Px[i] = 0.0
    for n in range(K):
        k = K - 1 - n
        if w[k] == 0.0:
            continue
        before = length
        length = math.sqrt(before * before + factor * w[k] * w[k])
        rotate_rows(Px[k:], root[k, k:], before / length, scale * w[k] / length)
    for i in range(K):
        Px[i] /= scale


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
    for k in range(root.shape[0]):
        for i in range(k, found.size):
            found[i] += root[k, i] * root[k, i]
    return found


@jit
def scale_root(root: Floats, factors: Floats) -> None:
    """S P S with S = diag(factors)."""
    for k in range(root.shape[0]):
        for i in range(k, factors.size):
            root[k, i] *= factors[i]


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
