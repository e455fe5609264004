"""What one simple task costs a worker, in CPU: `python -m tests.unit.worker.cost [tasks] [--profile]`.

The in-memory log stands in for Kafka, so its own cost is in the figure; it is measured apart and printed too.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time

import uvloop

from holdfast.contracts.messages import decode_task, encode_report, encode_task
from holdfast.contracts.topics import REPORTS, task_topic
from holdfast.core.inputs import ActorType, Origin, TaskReportedCompleted
from holdfast.log.protocol import Message
from holdfast.worker import ActivityContext, activity
from tests.unit.worker.stage import Stage, until


@activity("test.simple")
async def simple(ctx: ActivityContext, value: dict[str, int]) -> dict[str, int]:
    return {"doubled": value["number"] * 2}


async def main(tasks: int, profile: bool) -> None:
    stage = Stage()
    topic = task_topic("test")
    async with stage.worker([simple]) as running:
        done = 0

        def count(report: object, attempt: object) -> None:
            nonlocal done
            done += 1
            send(report, attempt)

        send = running.engine.reporter.send
        running.engine.reporter.send = count
        values = [encode_task(stage.make("test.simple", {"number": n})) for n in range(tasks)]
        profiler = cProfile.Profile()
        begun = time.process_time()
        if profile:
            profiler.enable()
        for at in range(0, tasks, 500):
            for value in values[at : at + 500]:
                stage.log.append(Message(topic, b"k", value, (), 0), 10_000_000)
            await until(lambda: done >= min(at + 500, tasks))  # noqa: B023
        await until(lambda: stage.committed() == tasks)
        if profile:
            profiler.disable()
        total = time.process_time() - begun
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
    print(
        f"whole, with the in-memory log: {1e6 * total / tasks:.1f} us per task ({len(stage.records(REPORTS))} reports)"
    )
    print(f"  decode_task   {_each(decode_task, values):.1f} us")
    origin = Origin(ActorType.WORKER, "host-1-abcd", "")
    d = decode_task(values[0])
    report = TaskReportedCompleted(d.instance, origin, d.path, 1, 1, "host-1-abcd", d.input)
    print(f"  encode_report {_each(encode_report, [report] * tasks):.1f} us")
    print(f"  in-memory log {await _log_cost(tasks, values):.1f} us")


def _each(fn: object, arguments: list) -> float:  # type: ignore[type-arg]
    begun = time.process_time()
    for argument in arguments:
        fn(argument)  # type: ignore[operator]
    return 1e6 * (time.process_time() - begun) / len(arguments)


async def _log_cost(tasks: int, values: list[bytes]) -> float:
    stage = Stage()
    begun = time.process_time()
    for value in values:
        stage.log.append(Message(task_topic("test"), b"k", value, (), 0), 10_000_000)
        stage.log.append(Message(REPORTS, b"shop/orders/order-1", value, (), None), 10_000_000)
    return 1e6 * (time.process_time() - begun) / tasks


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    uvloop.run(main(*(numbers or [20_000]), "--profile" in sys.argv))
