"""The period that a change of the problem finds half played, and what is left of it to play.

Owns what was spent so far; how the rest is played is the guard's.
"""

import math

import numpy as np

from bylot.kernels.compile import Floats
from bylot.policies.guard import ROUNDING, Account, Guard


def play_on(old: Guard, was: Account, new: Guard, now: Account, over: Floats) -> None:
    """Go on with the period of another guard: n rounds of it are played, at spent = n b + over.

    over: what was spent beyond the bounds so far, in units of the new rows (`beyond`)

    The rest, P - n rounds, must do for the guard to keep its promise with its rota from place 0 on:
    over + (P - n) F + ahead <= (P - n) b. So n is the rounds that were played, or fewer: then the
    period ends later. What not even a whole period can make up for is let go, and counts as a
    period that missed the limit.
    """
    room, ahead, least = new.b - new.schedule.mean, new.schedule.ahead[0], 1
    if new.on:
        most = np.maximum(new.period * room - ahead, 0.0)
        now.missed[:] += over > most + ROUNDING * new.period * np.abs(new.b)
        over = np.minimum(over, most)
        short = over + ahead > ROUNDING * np.abs(new.b)
        needed = (over + ahead)[short] / np.maximum(room[short], ROUNDING)
        least = math.ceil(min(float(needed.max(initial=1.0)), new.period))
    n = min(old.period - int(was.left[0]), new.period - least)
    now.left[0] = new.period - n
    now.spent[:] = n * new.b + over


def beyond(guard: Guard, account: Account) -> Floats:
    """What the rounds of this period cost beyond its bounds, spent - n b; negative: less."""
    played: Floats = account.spent - (guard.period - account.left[0]) * guard.b
    return played
