"""The shop's activities. Run them with: holdfast worker examples.orders.worker:worker"""

import asyncio

from examples.orders.ledger import Ledger
from examples.orders.models import Order, Parcel, Receipt, Reservation, Shipment, Undo
from holdfast import ActivityContext, NonRetryable, Worker, activity

ledger = Ledger()


@activity("inventory.reserve")
def reserve(ctx: ActivityContext, order: Order) -> Reservation:
    ledger.called(ctx, order.order_id)
    ledger.effect(ctx, order.order_id)
    return Reservation(reservation=f"rsv-{order.order_id}")


@activity("inventory.release")
def release(ctx: ActivityContext, undo: Undo[Reservation]) -> None:
    ledger.called(ctx, undo.input.order_id)
    ledger.effect(ctx, undo.input.order_id)


@activity("payment.charge")
def charge(ctx: ActivityContext, order: Order) -> Receipt:
    ledger.called(ctx, order.order_id)
    if order.amount <= 0:
        raise NonRetryable("the amount must be positive", code="amount_invalid", details={"amount": order.amount})
    if ctx.attempt <= order.faults.payment_flaky:
        raise ConnectionError("the bank did not answer")
    ledger.effect(ctx, order.order_id)
    return Receipt(receipt=f"rcp-{order.order_id}", amount=order.amount)


@activity("payment.refund")
def refund(ctx: ActivityContext, undo: Undo[Receipt]) -> None:
    ledger.called(ctx, undo.input.order_id)
    if undo.input.faults.refund_fails:
        raise NonRetryable("the bank refuses the refund", code="refund_refused")
    ledger.effect(ctx, undo.input.order_id)


@activity("shipping.create")
async def ship(ctx: ActivityContext, shipment: Shipment) -> Parcel:
    order = shipment.order
    await asyncio.to_thread(ledger.called, ctx, order.order_id)
    if order.faults.shipping_fails:
        raise NonRetryable(f"no carrier takes {order.item}", code="no_carrier")
    # A second attempt books nothing: the effect key is the same, so the carrier knows the parcel.
    await asyncio.to_thread(ledger.effect, ctx, order.order_id)
    if order.faults.shipping_slow_s and ctx.attempt == 1:
        await asyncio.sleep(order.faults.shipping_slow_s)  # The parcel is booked, but the carrier's answer dawdles.
    return Parcel(tracking=f"trk-{order.order_id}")


worker = Worker([reserve, release, charge, refund, ship], concurrency=50)
