// Starts the recipe for NestJS: node dist/main.js, after tsc

// --8<-- [start:main]
import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { LocksModule } from "./locks.js";
import { OrdersController } from "./orders.js";

@Module({ imports: [LocksModule], controllers: [OrdersController] })
export class AppModule {}

const app = await NestFactory.create(AppModule);
app.enableShutdownHooks(); // without them SIGTERM ends the process at once, and locks stay until their leases end
await app.listen(process.env.PORT ?? 3000);
