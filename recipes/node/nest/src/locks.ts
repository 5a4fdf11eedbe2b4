// The recipe for NestJS: a client for the process, and an interceptor that runs handlers under a lock.

// --8<-- [start:locks]
import {
  type ArgumentsHost,
  type CallHandler,
  Catch,
  createParamDecorator,
  type ExceptionFilter,
  type ExecutionContext,
  Global,
  HttpException,
  Injectable,
  Module,
  type NestInterceptor,
  type OnApplicationShutdown,
} from "@nestjs/common";
import { APP_FILTER, APP_INTERCEPTOR, Reflector } from "@nestjs/core";
import type { Request, Response } from "express";
import { type Lease, LockLost, LockTimeout, Redlock, Unavailable } from "redlock-core";
import { from, lastValueFrom, type Observable } from "rxjs";

/** Runs a handler under a lock: `@Locked({ name: ({ params }) => `order:${params.id}`, wait: 2_000 })`. */
export const Locked = Reflector.createDecorator<{ name: (request: Request) => string; wait: number }>();

/** A parameter of such a handler: its lease. */
export const Held = createParamDecorator((_, context: ExecutionContext) => leases.get(request(context)));

const leases = new WeakMap<Request, Lease>();
const request = (context: ExecutionContext) => context.switchToHttp().getRequest<Request>();

@Injectable()
export class LockInterceptor implements NestInterceptor {
  constructor(
    private readonly client: Redlock,
    private readonly reflector: Reflector,
  ) {}

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const lock = this.reflector.get(Locked, context.getHandler());
    if (!lock) return next.handle();
    const gone = new AbortController(); // a client that goes away ends the wait, not the handler
    const response = context.switchToHttp().getResponse<Response>();
    response.once("close", () => gone.abort(new HttpException("the client has gone away", 499)));
    const options = { wait: lock.wait, signal: gone.signal };
    return from(
      this.client.using(lock.name(request(context)), options, (_lost, lease) => {
        leases.set(request(context), lease);
        // next.handle() runs nothing yet. lastValueFrom() subscribes, and so runs the handler under the lock.
        return lastValueFrom(next.handle(), { defaultValue: undefined });
      }),
    );
  }
}

@Catch(LockTimeout, LockLost, Unavailable)
export class LockFilter implements ExceptionFilter {
  catch(error: LockTimeout | LockLost | Unavailable, host: ArgumentsHost) {
    const busy = error instanceof LockTimeout;
    const response = host.switchToHttp().getResponse<Response>();
    response
      .status(busy ? 409 : 503)
      .set("Retry-After", busy ? "2" : "5")
      .json({ error: error.code });
  }
}

// --8<-- [end:locks]

// --8<-- [start:module]
@Global()
@Module({
  providers: [
    { provide: Redlock, useFactory: () => new Redlock((process.env.REDLOCK_URL ?? "").split(",")) },
    { provide: APP_INTERCEPTOR, useClass: LockInterceptor },
    { provide: APP_FILTER, useClass: LockFilter },
  ],
  exports: [Redlock],
})
export class LocksModule implements OnApplicationShutdown {
  constructor(private readonly client: Redlock) {}

  // Not onModuleDestroy(): Nest calls that one while requests are still under way.
  async onApplicationShutdown() {
    await this.client.close();
  }
}
