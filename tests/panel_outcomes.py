"""Answers and failures of members, made up."""

from bylot.gateway.answers import NO_USAGE, Answer, Failure


def answer(member: str, cost: float | None) -> Answer:
    choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    return Answer(
        member=member, choice=choice, cost=cost, model=member, usage=NO_USAGE, seconds=0.1
    )


def failure(member: str, cost: float | None, reason: str = "timeout") -> Failure:
    sent = cost != 0.0
    return Failure(member=member, reason=reason, sent=sent, cost=cost, usage=NO_USAGE, seconds=0.1)
