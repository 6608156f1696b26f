/** Messages that are no protobuf: the client's mistake, where grpc-js would answer with INTERNAL. */
import { Server, ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js';
import { HostError } from '../errors.ts';
import { account, type GrpcContext } from './call.ts';
import { serviceError } from './status.ts';

/** What a request becomes that cannot be parsed. No handler sees it: {@link refuseMalformed} comes before. */
class Malformed {
  readonly reason: string;

  constructor(reason: string) {
    this.reason = reason;
  }
}

type Registered<Request, Response> = Parameters<typeof Server.prototype.register<Request, Response>>;

/** A server whose methods, of all its services, parse what they can. */
export class ParsingServer extends Server {
  override register<Request, Response>(
    ...[path, handler, serialize, deserialize, type]: Registered<Request, Response>
  ): boolean {
    const parse = (bytes: Buffer): Request | Malformed => {
      try {
        return deserialize(bytes);
      } catch (error) {
        return new Malformed((error as Error).message);
      }
    };
    return super.register(...([path, handler, serialize, parse, type] as Registered<Request, Response>));
  }
}

/** Ends a call with INVALID_ARGUMENT at its first malformed message. */
export function refuseMalformed(context: GrpcContext): ServerInterceptor {
  return ({ path }, call) => {
    const startMs = performance.now();
    const method = path.slice(path.lastIndexOf('/') + 1);
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMessage: (message: unknown, pass) => {
            if (!(message instanceof Malformed)) return pass(message);
            const error = new HostError(
              'bad-request',
              `a message to ${method} is not well-formed protobuf of its request type: ${message.reason}`,
            );
            account(context, method, error, startMs);
            const { code, details, metadata } = serviceError(error);
            call.sendStatus({ code, details, metadata });
          },
        }),
    });
  };
}
