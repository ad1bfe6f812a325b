"""A covariance as an upper triangle, P = T'T: samples, rank-one reductions, wider variances.

Only the triangle is read, so a pass is half of a full matrix, and P stays a covariance whatever is
rounded. All loops run along rows, as these are vectorised.
"""

import math

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit

MIN_PIVOT = 1e-12  # variance that counts as 0


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
    """out_n += T'z_n for every row z_n, four rows of T at a time: one pass for all samples."""
    K, whole = root.shape[0], root.shape[0] // 4 * 4
    for k in range(0, whole, 4):
        a, b, c, d = root[k], root[k + 1], root[k + 2], root[k + 3]
        for n in range(z.shape[0]):
            one, u, v, w, x = out[n], z[n, k], z[n, k + 1], z[n, k + 2], z[n, k + 3]
            for i in range(k, K):
                one[i] += (u * a[i] + v * b[i]) + (w * c[i] + x * d[i])
    for k in range(whole, K):
        for n in range(z.shape[0]):
            for i in range(k, K):
                out[n, i] += z[n, k] * root[k, i]


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
        c, s, row = before / length, scale * w[k] / length, root[k]
        for i in range(k, K):
            turned = c * Px[i] + s * row[i]
            row[i] = c * row[i] - s * Px[i]
            Px[i] = turned
    for i in range(K):
        Px[i] /= scale


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
