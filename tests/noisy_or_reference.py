"""The belief of noisy-or by the documented formulas, in plain NumPy, with P itself."""

import numpy as np

from bylot.numerics.jit import Floats, Ints

MAX_BETA = 1.0


class ReferenceBelief:
    """What contexts share, what they add, and the scale of rewards."""

    def __init__(self, size: int, members: int, contexts: int) -> None:
        self.size, self.members, self.contexts = size, members, contexts
        self.low, self.width, self.seen = 0.0, 1.0, list[float]()
        self.outside, self.check, self.used = 0, 64, set[int]()
        self.alarms, self.tau2, self.slope = 0, 0.02, [0.0, 0.0]
        self.restart()

    def restart(self) -> None:
        K, X = self.size, self.contexts
        self.beta, self.P = np.full(K, np.log(0.4) / self.members), np.eye(K) / self.members
        self.noise, self.e, self.n = [0.12, 0.4], np.zeros(K), 0
        self.info, self.moment = np.zeros((X, K)), np.zeros((X, K))
        self.a, self.V = np.zeros(X), np.full(X, 0.03)

    @property
    def phi(self) -> float:
        return float(np.clip(self.noise[0] / self.noise[1], 0.001, 1))

    @property
    def pooled(self) -> bool:
        return len(self.used) > 1

    def variances(self, x: int) -> Floats:
        return np.asarray(1 / (self.info[x] + 1 / self.tau2))

    def sample(self, x: int, scale: float, z: Floats, more: Floats) -> Floats:
        b = self.beta + scale * np.linalg.cholesky(self.P) @ z
        if self.pooled:
            D = self.variances(x)
            b = b + self.moment[x] * D + self.a[x] / self.members + scale / 2 * np.sqrt(D) * more
        return np.exp(np.clip(b, -8, 0.5))

    def find_scale(self, reward: float) -> bool:
        self.seen.append(reward)
        self.outside += not self.low - 1e-6 <= reward <= self.low + self.width + 1e-6
        if len(self.seen) < self.check:
            return False
        due = self.check == 64 or self.outside > 0.02 * self.check
        self.check, self.outside, was = 2 * self.check, 0, self.width
        least, span = min(self.seen), max(self.seen) - min(self.seen)
        if due:
            self.low, self.width = 0.0, 1.0
            if span > 1e-6 and 1.3 * span < 0.7:
                self.low = max(least - 0.15 * span, 0.0)
                self.width = min(least + 1.15 * span, 1.0) - self.low
        return self.width != was

    def learn(self, x: int, A: Ints, reward: float) -> None:
        if self.find_scale(reward):
            self.restart()
        y = float(np.clip((self.low + self.width - reward) / self.width, 0, 1))
        phi, D, d = self.phi, self.variances(x), self.moment[x] * self.variances(x)
        one = np.isin(np.arange(self.size), A).astype(float)
        mean, extra = one @ self.beta, 0.0
        if self.pooled:
            mean, extra = mean + one @ d + self.a[x], one @ D + self.V[x]
        mu = np.exp(min(mean, 0))
        known = mu < 0.003 and y < 0.003
        mu = max(mu, 0.003)
        Px = self.P @ one
        den = mu * (one @ Px + extra) + phi
        step = 0.0 if known else (y - mu) / den
        shorter = step / max(1.0, np.abs(Px[A] * step).max())
        self.beta = np.clip(self.beta + Px * shorter, -8, MAX_BETA)
        self.P = self.P - mu / den * np.outer(Px, Px)
        self.n += 1
        if self.pooled:
            self.learn_context(x, A, one @ (d * D) / self.tau2, step, shorter, mu / den)
        rate = max(min(0.01, 0.05 * mu / phi), 1 / (self.n + 9))
        self.noise[0] += rate * ((y - mu) ** 2 - self.noise[0])
        self.noise[1] += rate * (mu - self.noise[1])
        z = 0.0 if known else float(np.clip((y - mu) / np.sqrt(mu * den), -3, 3))
        self.check_drift(A, z, float(mu), phi)

    def learn_context(
        self, x: int, A: Ints, lean: float, step: float, shorter: float, f: float
    ) -> None:
        D, V = self.variances(x)[A], self.V[x]
        d, less = self.moment[x][A] * D + D * shorter, D - f * D**2
        self.info[x][A], self.moment[x][A] = 1 / less - 1 / self.tau2, d / less
        self.a[x], self.V[x] = self.a[x] + V * shorter, V - f * V**2
        self.slope = [self.slope[0] + step * lean, self.slope[1] + f * lean**2]
        if self.n % 200 == 0:
            move = np.clip(self.slope[0] / (self.slope[1] + 0.2), -0.5, 0.5)
            self.tau2 = float(np.clip(self.tau2 * np.exp(move), 0.001, 0.03))
            self.slope = [0.0, 0.9 * self.slope[1]]

    def check_drift(self, A: Ints, z: float, mu: float, phi: float) -> None:
        skew = (1 - 2 * min(mu, 0.9)) / (1 - min(mu, 0.9)) * np.sqrt(phi / min(mu, 0.9))
        noisy = min(2 * phi, 1)
        f, sd = min(0.05 - 0.03 * noisy, 0.25 / max(skew**2, 1e-9)), 4 + 2 * noisy
        self.e[A] += f * (z - self.e[A])
        excess = np.maximum(np.sign(self.e) * skew, 0) * np.sqrt(8 * f) / 3 * (sd**2 - 1) / 6
        fired = (np.abs(self.e) > np.sqrt(f / 2) * (sd + excess)) & np.isin(np.arange(self.size), A)
        if fired.any():
            self.alarms += 1
            S = np.sqrt(np.clip(1 / self.members / np.diag(self.P), 1, 2))
            P = self.P * np.outer(S, S)
            reset = np.where(fired, np.maximum(1 / self.members - np.diag(P), 0), 0)
            self.P, self.e = P + np.diag(reset), np.where(fired, 0.0, self.e)


class ReferenceModel(ReferenceBelief):
    """With a second belief that forgets, and bets that it predicts better."""

    adopted = 0

    def restart(self) -> None:
        super().restart()
        self.recent_beta, self.recent_P, self.evidence = self.beta.copy(), self.P.copy(), 0.0

    def learn(self, x: int, A: Ints, reward: float) -> None:
        changed, was = self.compare_recent(x, A, reward), self.width
        super().learn(x, A, reward)
        if self.width != was:
            self.recent_beta, self.recent_P = self.beta.copy(), self.P.copy()
        elif changed:
            (X, K), self.adopted = self.info.shape, self.adopted + 1
            self.beta, self.P = self.recent_beta.copy(), self.recent_P.copy()
            self.evidence, self.e = 0.0, np.zeros(K)
            self.info, self.moment = np.zeros((X, K)), np.zeros((X, K))
            self.a, self.V = np.zeros(X), np.full(X, 0.03)

    def compare_recent(self, x: int, A: Ints, reward: float) -> bool:
        y = float(np.clip((self.low + self.width - reward) / self.width, 0, 1))
        one = np.isin(np.arange(self.size), A).astype(float)
        mean, extra, D = 0.0, 0.0, self.variances(x)
        if self.pooled:
            mean, extra = one @ (self.moment[x] * D) + self.a[x], one @ D + self.V[x]
        expected, mu = (
            float(np.clip(np.exp(one @ beta + mean), 0.003, 1))
            for beta in (self.beta, self.recent_beta)
        )
        Px = self.recent_P @ one
        den = mu * (one @ Px + extra) + self.phi
        if self.n >= 200 and self.phi < 0.5:
            d = mu - expected
            bet = d / (mu * den + d**2)
            bet = min(max(bet, -0.5 / max(1 - expected, 1e-3)), 0.5 / expected)
            self.evidence = min((1 + self.evidence) * (1 + bet * (y - expected)), 1e6)
        step = 0.0 if mu <= 0.003 and y < 0.003 else (y - mu) / den
        step /= max(1.0, np.abs(Px[A] * step).max())
        self.recent_beta = np.clip(self.recent_beta + Px * step, -8, MAX_BETA)
        self.recent_P = self.recent_P - mu / den * np.outer(Px, Px)
        if self.n % 10 == 0:
            self.forget_older()
        return self.evidence >= 1e6

    def forget_older(self) -> None:
        prior, g = 1 / self.members, 2 ** (10 / 300)
        known = np.maximum(1 - np.diag(self.P) / prior, 0)
        weight = known.sum() + 2
        mean = (known @ self.beta + 2 * np.log(0.4) / self.members) / weight
        most = (known @ ((self.beta - mean) ** 2 + np.diag(self.P)) + 2 * prior) / weight
        most, v = min(most, prior), np.diag(self.recent_P)
        self.recent_beta = self.recent_beta + (1 - 1 / g) * np.minimum(v / most, 1) * (
            mean - self.recent_beta
        )
        S = np.sqrt(np.minimum(g, np.maximum(most / v, 1)))
        self.recent_P = self.recent_P * np.outer(S, S)
