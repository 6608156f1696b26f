/** Driver objects with a handle: events, graphs, streams, modules. */
import { misuse } from './memory.ts';
import { Owned } from './owned.ts';
import type { Session } from './session.ts';

/** The call that destroys an object, and the words for the error of a use after that. */
const kinds = {
  events: { destroy: 'cuEventDestroy_v2', use: 'cuEventRecord', one: 'an event' },
  graphs: { destroy: 'cuGraphExecDestroy', use: 'cuGraphLaunch', one: 'a graph' },
  streams: { destroy: 'cuStreamDestroy_v2', use: 'cuStreamSynchronize', one: 'a stream' },
  modules: { destroy: 'cuModuleUnload', use: 'cuModuleGetFunction', one: 'a module' },
} as const;

export abstract class DriverHandle extends Owned {
  protected readonly session: Session;
  protected readonly context: number;
  readonly #kind: keyof typeof kinds;
  readonly #handle: number;

  protected constructor(session: Session, context: number, kind: keyof typeof kinds, handle: number) {
    super();
    this.session = session;
    this.context = context;
    this.#kind = kind;
    this.#handle = handle;
    session.counts[kind]++;
  }

  /** @throws CudaError 'misuse' after the release */
  get handle(): number {
    const { use, one } = kinds[this.#kind];
    if (this.released) throw misuse(use, `${one} was used after its release`);
    return this.#handle;
  }

  protected giveBack(): void {
    const { session, context } = this;
    session.use(context);
    const { destroy } = kinds[this.#kind];
    const status = session.driver[destroy](this.#handle);
    session.counts[this.#kind]--;
    session.checkRelease(destroy, status);
  }
}
