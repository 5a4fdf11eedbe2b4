// Orders, each of which is paid once.

// --8<-- [start:orders]
import { Controller, Param, Post } from "@nestjs/common";
import type { Lease } from "redlock-core";
import { Held, Locked } from "./locks.js";

@Controller("orders")
export class OrdersController {
  private readonly shop = process.env.SHOP_URL;

  @Post(":id/pay")
  @Locked({ name: ({ params }) => `order:${params.id}`, wait: 2_000 })
  async pay(@Param("id") id: string, @Held() lease: Lease) {
    const { signal } = lease; // aborted when the lock is lost
    const found = await fetch(`${this.shop}/orders/${id}`, { signal }); // read after the acquire
    const order = (await found.json()) as { paid: boolean };
    if (!order.paid) {
      const headers = { "Idempotency-Key": `order-${id}`, "Fencing-Token": String(lease.token) };
      const reply = await fetch(`${this.shop}/orders/${id}/charge`, { method: "POST", headers, signal });
      if (!reply.ok) throw new Error(`the charge failed: ${reply.status}`);
    }
    return { paid: true };
  }
}
