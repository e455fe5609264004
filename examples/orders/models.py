"""What the shop's activities take and return. Holdfast carries them as JSON; pydantic checks them at the activity."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, Field


class Faults(BaseModel):
    """What shall go wrong with this order: how the demo and the tests make a carrier fail or dawdle."""

    shipping_fails: bool = False  # no carrier takes it, however often one asks
    shipping_slow_s: float = 0.0  # the first attempt takes this long
    payment_flaky: int = 0  # so many charges fail before one works
    refund_fails: bool = False  # the bank refuses for good: COMPENSATION_FAILED


class Order(BaseModel):
    order_id: str
    item: str = "anchor"
    quantity: int = Field(default=1, ge=1)
    amount: float
    faults: Faults = Field(default_factory=Faults)


class Reservation(BaseModel):
    reservation: str


class Receipt(BaseModel):
    receipt: str
    amount: float


class Shipment(BaseModel):
    order: Order
    payment: Receipt


class Parcel(BaseModel):
    tracking: str


Output = TypeVar("Output", bound=BaseModel)


class Undo(BaseModel, Generic[Output]):
    """What a compensation gets: the order, what the task it undoes returned (if that is known), and its effect key."""

    input: Order
    output: Output | None = None
    outcome: Literal["completed", "unknown"]
    effect_key: str
