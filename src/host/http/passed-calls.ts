/** Calls that other hosts of the fleet pass to this one: as frames on kept connections. */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { CallLink, linkNonceHeader, linkTarget } from '../../fleet/index.ts';
import type { Message } from '../../tensor/index.ts';
import { admitted } from '../access/access.ts';
import { HostError, toHostError } from '../errors.ts';
import { answerFrame, callIn, failureFrame, isHere, type PassedCall } from '../fleet-member/index.ts';
import type { Ran } from '../calls/placement.ts';
import { logFailure } from '../replied.ts';
import { clientSignal } from './exchange.ts';
import { notInFleet, peerOf, unsigned } from './fleet-routes.ts';
import { versionNamed, type HostContext } from './host-context.ts';

/** How much a body of `[0,0,...]` grows as 8-byte elements. */
const widened = 4;

/** Runs a call that another host passes on: here or not at all. @throws HostError */
async function run(context: HostContext, call: PassedCall, arrivalMs: number, signal: AbortSignal): Promise<Ran> {
  const version = versionNamed(context, call.name, call.version);
  return await admitted(context, version.name, async () => {
    if (!isHere(call, version)) {
      throw new HostError('not-ready', `this host does not have '${version.key}' as the one that asks`);
    }
    if (context.fleet?.routing !== undefined) context.fleet.routing.taken++;
    const { sloMs, leftMs, priority } = call.wish;
    const deadlineMs = leftMs === undefined ? undefined : arrivalMs + leftMs;
    const options = { arrivalMs, sloMs, deadlineMs, priority, signal, rows: 1 };
    return await context.invoker.runPassed(version, call.input, options);
  });
}

/** The connections on which other hosts pass calls. */
export class CallLinks {
  readonly #context: HostContext;
  /** Each link, and whether it has a call. */
  readonly #links = new Map<CallLink, boolean>();
  #isClosing = false;

  constructor(context: HostContext) {
    this.#context = context;
  }

  /** Takes a connection that a host has opened by CONNECT. @throws HostError */
  take(incoming: IncomingMessage, socket: Socket, head: Buffer): void {
    const { fleet } = this.#context;
    if (incoming.url !== linkTarget) throw new HostError('method-not-allowed', 'CONNECT is not for this host');
    const peer = peerOf(this.#context, incoming);
    if (fleet === undefined) throw notInFleet();
    if (peer === undefined) throw unsigned();
    if (this.#isClosing) throw new HostError('draining', 'the host is shutting down and takes no new work');
    this.#context.connections.takePeer(incoming.socket);
    const nonce = randomBytes(16).toString('hex');
    socket.write(`HTTP/1.1 200 Connection Established\r\n${linkNonceHeader}: ${nonce}\r\n\r\n`);
    const seals = fleet.fleet.seal.linkSeals('server', incoming.headers.authorization ?? '', nonce);
    const link = new CallLink(socket, head, seals, {
      message: (message) => void this.#answer(link, peer.from, message),
      ended: () => this.#links.delete(link),
    });
    this.#links.set(link, false);
    // Bytes that the other host does not read stay in memory, so there is a time limit.
    socket.on('timeout', () => (socket.writableLength > 0 ? socket.destroy() : socket.setTimeout(0)));
  }

  /** Calls under way are answered first, within `graceMs`. */
  close(graceMs: number): void {
    this.#isClosing = true;
    for (const [link, isBusy] of this.#links) if (!isBusy) this.#end(link);
    setTimeout(() => {
      for (const link of this.#links.keys()) this.#end(link);
    }, graceMs).unref();
  }

  #end(link: CallLink): void {
    link.destroy(new Error('the host is shutting down'));
  }

  async #answer(link: CallLink, from: string, message: Message<object>): Promise<void> {
    const { exchangeMeans, config } = this.#context;
    const arrivalMs = performance.now();
    let release: (() => void) | undefined;
    this.#links.set(link, true);
    let frame: Message<object>;
    try {
      const bytes = message.tensors.reduce((sum, { data }) => sum + data.byteLength, 0);
      const bytesMax = widened * config.limits.bodyBytesMax;
      if (bytes > bytesMax) throw new HostError('body-too-large', `a call of ${bytes} bytes is over ${bytesMax}`);
      exchangeMeans.inFlight.held((whenOver) => (release = whenOver)).grow(bytes);
      const call = callIn(message);
      const signal = clientSignal(link.socket);
      frame = answerFrame(await run(this.#context, call, arrivalMs, signal));
    } catch (error) {
      this.#tell(from, toHostError(error));
      frame = failureFrame(error);
    }
    release?.();
    if (!link.isUp) return;
    this.#links.set(link, false);
    link.send(frame);
    if (link.socket.writableLength > 0) link.socket.setTimeout(exchangeMeans.stallMs);
    if (this.#isClosing) link.socket.destroySoon();
  }

  #tell(host: string, failure: HostError): void {
    const { statistics, logger } = this.#context;
    statistics.failed(failure);
    logFailure(logger, failure, { host }, 'a passed call failed');
  }
}
