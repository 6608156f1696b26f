/** State that the parts of one device share: its context, made at the first use, and events for reuse. */
import type { Session } from './session.ts';
import type { Waiter } from './waiter.ts';

export class DeviceCore {
  readonly session: Session;
  readonly waiter: Waiter;
  /** The driver's number for the device. */
  readonly ordinal: number;
  readonly copied = { fromHost: 0, toHost: 0, toPeers: 0 };
  readonly #waitEvents: number[] = [];
  readonly #newEvent: (core: DeviceCore) => number;
  #context = 0;
  #released = false;

  constructor(session: Session, waiter: Waiter, ordinal: number, newEvent: (core: DeviceCore) => number) {
    this.session = session;
    this.waiter = waiter;
    this.ordinal = ordinal;
    this.#newEvent = newEvent;
  }

  /**
   * The primary context, which the libraries share. It is made at the first use, because it costs hundreds of
   * milliseconds and megabytes.
   */
  get context(): number {
    if (this.#context !== 0) return this.#context;
    const { session } = this;
    if (this.#released) throw session.error('cuDevicePrimaryCtxRetain', 4, `device ${this.ordinal} was released`);
    const status = session.driver.cuDevicePrimaryCtxRetain(session.outAddress(), this.ordinal);
    session.check('cuDevicePrimaryCtxRetain', status, `device ${this.ordinal}`);
    this.#context = session.outInteger();
    return this.#context;
  }

  /** Undefined before the first use. */
  get contextIfAny(): number | undefined {
    return this.#context === 0 ? undefined : this.#context;
  }

  takeWaitEvent(): number {
    return this.#waitEvents.pop() ?? this.#newEvent(this);
  }

  giveWaitEvent(event: number): void {
    // The events ended with the context.
    if (!this.#released) this.#waitEvents.push(event);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#context === 0) return;
    const { session } = this;
    session.use(this.#context);
    for (const event of this.#waitEvents) {
      session.checkRelease('cuEventDestroy_v2', session.driver.cuEventDestroy_v2(event));
    }
    this.#waitEvents.length = 0;
    session.forgetContext();
    this.#context = 0;
    const status = session.driver.cuDevicePrimaryCtxRelease_v2(this.ordinal);
    session.checkRelease('cuDevicePrimaryCtxRelease_v2', status);
  }
}
