"""A rough belief about every expert, with which mirror ascent reduces noise and escapes lock-in.

It is learned from the rewards of panels, whatever feedback is declared.

E[1 - reward | A] = exp(sum of b_i over A), with independent b_i ~ N(beta_i, variance_i). No limit
and no propensity depends on it. The gradient stays unbiased, but for a bonus for little-known
experts: what the belief predicts of a reward is subtracted from it, and the gradient of the
prediction, which is known exactly, is added.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.embedded import jit_apart, jit_embedded
from bylot.numerics.jit import Floats, Ints, jit
from bylot.numerics.sampling import is_first_draw
from bylot.numerics.scratch_arrays import borrow_row
from bylot.policies.change_detection import RECENT_BATCH, bet_on_recent, fit_skills, forget_skill

PRIOR_LOG_MISS, PRIOR_VARIANCE = -0.3, 0.25  # of each b_i
MIN_LOG_MISS, MAX_LOG_MISS = -8.0, 0.3
MIN_MISS = 0.003  # of a panel
INITIAL_NOISE, MIN_NOISE, MAX_NOISE = 0.1, 0.001, 1.0  # variance of a miss over its mean
NOISE_RATE = 0.002
MIN_EXCHANGED_INCLUSION = 0.2  # of the expert that another one replaces
EXCHANGE_GAP = 1.0  # by which the logit of the other must be lower
EXCHANGE_DEVIATIONS = 1.5  # by which it must miss less
TRIAL_DEVIATIONS = 3.0  # by which it may miss less than is believed, if both cost the same
MAX_BELIEVED_DRAWS = 500.0  # of an expert: older ones are forgotten
TRUST_DECAY = 0.98  # of what confirmed predictions, at every later step


class MemberBelief(NamedTuple):
    """A row per distribution that moves."""

    beta: Floats  # (R, K)
    variance: Floats  # (R, K)
    noise: Floats  # (R,)
    known: Floats  # (R,) rewards that the noise is estimated from
    values: Floats  # (R, K) what each expert adds to a reward, as believed at the last step
    trust: Floats  # (R,) how much of that rewards confirmed, from 0 to 1
    agreement: Floats  # (R,) recent sum of predictions times what came
    strength: Floats  # (R,) and of their squares
    asked: Floats  # (R, K) draws that are believed

    def is_valid(self, rule: Any) -> bool:
        counted = (self.asked >= 0).all() and (self.asked <= MAX_BELIEVED_DRAWS).all()
        return bool(counted and (self.variance > 0).all() and (self.noise >= MIN_NOISE).all())


def make_member_belief(rows: int, size: int) -> MemberBelief:
    """All experts alike."""
    return MemberBelief(
        beta=np.full((rows, size), PRIOR_LOG_MISS),
        variance=np.full((rows, size), PRIOR_VARIANCE),
        noise=np.full(rows, INITIAL_NOISE),
        known=np.zeros(rows),
        values=np.zeros((rows, size)),
        trust=np.zeros(rows),
        agreement=np.zeros(rows),
        strength=np.zeros(rows),
        asked=np.zeros((rows, size)),
    )


@jit_apart
def forget_members(belief: MemberBelief, x: int) -> None:
    """Return to the prior."""
    for i in range(belief.beta.shape[1]):
        belief.beta[x, i], belief.variance[x, i] = PRIOR_LOG_MISS, PRIOR_VARIANCE
        belief.values[x, i] = belief.asked[x, i] = 0.0
    belief.noise[x], belief.known[x] = INITIAL_NOISE, 0.0
    belief.trust[x] = belief.agreement[x] = belief.strength[x] = 0.0


@jit_embedded
def predict_members(belief: MemberBelief, x: int, draws: Ints) -> tuple[float, float]:
    """What a panel is expected to miss, and the variance of its logarithm."""
    total, spread = 0.0, 0.0
    for j in range(draws.size):
        if is_first_draw(draws, j):
            total += belief.beta[x, draws[j]]
            spread += belief.variance[x, draws[j]]
    return max(math.exp(min(total, 0.0)), MIN_MISS), spread


@jit_embedded
def update_member_belief(belief: MemberBelief, x: int, draws: Ints, reward: float) -> None:
    """A step of the extended Kalman filter with a diagonal covariance; no b_i moves by more than 1.

    mu = exp(sum_A beta);  den = mu sum_A variance + noise;  step = (1 - reward - mu) / den
    beta_i += variance_i step;  variance_i -= (mu / den) variance_i^2.
    """
    mu, spread = predict_members(belief, x, draws)
    correct_members(belief, x, draws, reward, mu, spread)


@jit_embedded
def correct_members(
    belief: MemberBelief, x: int, draws: Ints, reward: float, mu: float, spread: float
) -> None:
    """`update_member_belief`, given what was predicted."""
    beta, variance = borrow_row(belief.beta, x), borrow_row(belief.variance, x)
    noise, surprise = belief.noise[x], 1.0 - reward - mu
    den = mu * spread + noise
    for j in range(draws.size):
        if is_first_draw(draws, j):
            i = draws[j]
            move = min(max(variance[i] * surprise / den, -1.0), 1.0)
            beta[i] = min(max(beta[i] + move, MIN_LOG_MISS), MAX_LOG_MISS)
            variance[i] -= mu / den * variance[i] * variance[i]
            variance[i] = max(variance[i], noise / (mu * MAX_BELIEVED_DRAWS))
            belief.asked[x, i] = min(belief.asked[x, i] + 1.0, MAX_BELIEVED_DRAWS)
    seen = min(surprise * surprise / mu, 10.0 * noise + 0.1)
    belief.known[x] += 1.0
    rate = max(NOISE_RATE, 1.0 / (belief.known[x] + 10.0))
    belief.noise[x] = min(max(noise + rate * (seen - noise), MIN_NOISE), MAX_NOISE)


@jit_embedded
def compare_recent(
    recent: MemberBelief, evidence: Floats, belief: MemberBelief, draws: Ints, reward: float
) -> None:
    """Bet that the recent belief, which forgets, predicts a reward better; then update both."""
    expected, width = predict_members(belief, 0, draws)
    mu, spread = predict_members(recent, 0, draws)
    noise, known = recent.noise[0], recent.known[0]
    bet_on_recent(evidence, known, noise, expected, mu, mu * (mu * spread + noise), 1.0 - reward)
    correct_members(recent, 0, draws, reward, mu, spread)
    if int(recent.known[0]) % RECENT_BATCH == 0:
        forget_older_rewards(recent, belief)
    correct_members(belief, 0, draws, reward, expected, width)


@jit_apart
def forget_older_rewards(recent: MemberBelief, belief: MemberBelief) -> None:
    """Let the recent belief return to what experts are like, with a half-life."""
    beta, widths = belief.beta[0], belief.variance[0]
    mean, most = fit_skills(beta, widths, PRIOR_LOG_MISS, PRIOR_VARIANCE)
    for i in range(beta.size):
        growth = forget_skill(recent.beta[0], i, recent.variance[0, i], mean, most)
        recent.variance[0, i] *= growth


@jit_apart
def adopt_members(belief: MemberBelief, recent: MemberBelief) -> None:
    """Believe what the recent belief says."""
    for i in range(belief.beta.shape[1]):
        belief.beta[0, i], belief.variance[0, i] = recent.beta[0, i], recent.variance[0, i]
        belief.asked[0, i] = 0.0


@jit_embedded
def subtract_prediction(
    belief: MemberBelief, x: int, draws: Ints, pi: Floats, centered: float
) -> float:
    """centered - trust (sum_A values_i - sum_i pi_i values_i): less how much better than an average
    panel A should be. Notes whether it was.
    """
    values, more = borrow_row(belief.values, x), 0.0
    for j in range(draws.size):
        more += values[draws[j]] if is_first_draw(draws, j) else 0.0
    for i in range(pi.size):
        more -= pi[i] * values[i]
    belief.agreement[x] += centered * more
    belief.strength[x] += more * more
    left: float = centered - belief.trust[x] * more
    return left


@jit
def add_believed_slope(
    g: Floats, belief: MemberBelief, x: int, miss: float, share: float, bonus: float
) -> None:
    """Add the gradient of the predictions of the last batch, and a bonus for who is little known;
    then predict again.

    First order in b, an expert adds -miss b_i to a reward, with miss that of the average panel. The
    trust in predictions is the slope of the regression of rewards on them.
    """
    for i in range(g.size):
        doubt = bonus * miss * math.sqrt(belief.variance[x, i])
        g[i] += share * (belief.trust[x] * belief.values[x, i] + doubt)
        belief.values[x, i] = -miss * belief.beta[x, i]
    if belief.strength[x] > 0.0:
        belief.trust[x] = min(max(belief.agreement[x] / belief.strength[x], 0.0), 1.0)
    belief.agreement[x] *= TRUST_DECAY
    belief.strength[x] *= TRUST_DECAY


@jit
def compute_trial_deviation(belief: MemberBelief, x: int, i: int) -> float:
    """The standard deviation of b_i if panels of one had shown it: sqrt(noise / (n e^b_i)).

    That of the belief is too small after a few rewards of 0 or 1, whose noise is learned later.
    """
    draws = belief.asked[x, i] + 1.0
    return math.sqrt(belief.noise[x] * math.exp(-belief.beta[x, i]) / draws)


@jit_apart
def exchange_logits(
    theta: Floats, pi: Floats, belief: MemberBelief, x: int, prices: Floats, miss: float
) -> None:
    """Exchange the logits of an expert that is often asked and of a better one that is not.

    Two good experts under one cap are a trap for a gradient: panels with both waste the cap, so
    between one and the other lies a valley, and who was lucky first would stay. Better is who
    misses less by 1.5 standard deviations, by more than the price of what it costs more. If limits
    make both pay the same price, better is who may miss less: who has the lower confidence bound,
    so that an expert with bad luck is tried again, and gives way again if it was not luck.
    """
    beta, variance = belief.beta[x], belief.variance[x]
    best, better, worse = 0.0, -1, -1
    for j in range(theta.size):
        if pi[j] >= MIN_EXCHANGED_INCLUSION:
            bound = beta[j] - TRIAL_DEVIATIONS * compute_trial_deviation(belief, x, j)
            for i in range(theta.size):
                if theta[i] < theta[j] - EXCHANGE_GAP:
                    if prices[i] == prices[j] and prices[j] > 0.0:
                        less = bound - beta[i]
                        less += TRIAL_DEVIATIONS * compute_trial_deviation(belief, x, i)
                    else:
                        less = beta[j] - beta[i]
                        less -= EXCHANGE_DEVIATIONS * math.sqrt(variance[i] + variance[j])
                    if less > 0.0:  # rare; else nothing is gained
                        gain = miss * (1.0 - math.exp(-less)) - max(prices[i] - prices[j], 0.0)
                        if gain > best:
                            best, better, worse = gain, i, j
    if better >= 0:
        theta[better], theta[worse] = theta[worse], theta[better]
