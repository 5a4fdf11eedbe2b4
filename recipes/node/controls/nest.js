// The application of the recipe with a mistake, which CONTROL names.

import "reflect-metadata";
import { Controller, Module, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { mergeAll, of } from "rxjs";
import { Locked, LockInterceptor, LocksModule } from "../nest/dist/locks.js";
import { OrdersController } from "../nest/dist/orders.js";

const { CONTROL } = process.env;

if (CONTROL === "closed too early") {
  LocksModule.prototype.onModuleDestroy = LocksModule.prototype.onApplicationShutdown;
}
if (CONTROL === "not subscribed") {
  // The body of the lock returns the observable. Nest subscribes to it after the release, and so runs the handler then.
  const { intercept } = LockInterceptor.prototype;
  LockInterceptor.prototype.intercept = function (context, next) {
    return intercept.call(this, context, { handle: () => of(next.handle()) }).pipe(mergeAll());
  };
}

// A handler that waits for a minute.
class Patient {
  patient() {}
}
Controller("orders")(Patient);
const handler = Object.getOwnPropertyDescriptor(Patient.prototype, "patient");
Post(":id/patient")(Patient.prototype, "patient", handler);
Locked({ name: ({ params }) => `order:${params.id}`, wait: 60_000 })(Patient.prototype, "patient", handler);

class AppModule {}
Module({ imports: [LocksModule], controllers: [OrdersController, Patient] })(AppModule);
const app = await NestFactory.create(AppModule, { logger: ["error"] });
if (CONTROL !== "no hooks") app.enableShutdownHooks();
await app.listen(process.env.PORT);
