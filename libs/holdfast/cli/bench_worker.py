"""The activities of the benchmark: they do nothing, so that what is measured is Holdfast."""

from holdfast import Worker, activity


@activity("inventory.reserve")
async def reserve(order: dict[str, object]) -> dict[str, object]:
    return {"reserved": order["items"]}


@activity("payment.charge")
async def charge(order: dict[str, object]) -> dict[str, object]:
    return {"receipt": "r-1", "amount": order["amount"]}


@activity("shipping.create")
async def ship(order: dict[str, object]) -> dict[str, object]:
    return {"tracking": "t-1"}


@activity("inventory.release")
async def release(undo: dict[str, object]) -> None:
    return None


@activity("payment.refund")
async def refund(undo: dict[str, object]) -> None:
    return None


worker = Worker([reserve, charge, ship, release, refund], concurrency=500)
