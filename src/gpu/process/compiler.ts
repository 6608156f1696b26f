/** The GPU process's side of the thread that makes programs. */
import { compiledModule, Server, startThread } from '../../process/index.ts';
import { given } from '../../tools/index.ts';
import type { OperatorGroup } from '../operators/index.ts';
import type { Obstacle, ProgramSettings } from '../program/index.ts';
import { GpuError } from '../types.ts';
import type { CompileAnswer, CompileFailure, CompileOrder } from './compile-protocol.ts';

const thread = {
  module: compiledModule('./compile-worker.js', import.meta.url),
  name: 'compiler',
  ends: 'at-once',
} as const;

/** A model that cannot become a program, with the unsupported operators. */
export class CompileError extends GpuError {
  readonly obstacles: readonly Obstacle[];
  constructor(code: 'unsupported' | 'invalid', message: string, obstacles: readonly Obstacle[]) {
    super(code, message);
    this.obstacles = obstacles;
  }
}

type Without<Whole, Key extends PropertyKey> = Whole extends unknown ? Omit<Whole, Key> : never;
type Order = Without<CompileOrder, 'cacheFolder' | 'settings' | 'withoutOperators'>;

export class Compiler {
  readonly #cacheFolder: string;
  /** Groups of operators that are left to the CPU. */
  withoutOperators: readonly OperatorGroup[] = [];
  #thread: CompileThread;

  constructor(cacheFolder: string) {
    this.#cacheFolder = cacheFolder;
    // Started early: loading its code takes a good part of a second, which the first function should not wait for.
    this.#thread = start();
  }

  /** Asks the thread. @throws CompileError */
  async make<Asked extends Order>(order: Asked, settings?: ProgramSettings): Promise<CompileAnswer<Asked['op']>> {
    if (!this.#thread.isAlive) this.#thread = start();
    const { withoutOperators } = this;
    const whole = { ...order, cacheFolder: this.#cacheFolder, withoutOperators, ...given({ settings }) };
    return (await this.#thread.ask<CompileAnswer<Asked['op']>>(whole)).answer;
  }

  async close(): Promise<void> {
    this.#thread.end('it was closed');
    await this.#thread.exited;
  }
}

type CompileThread = Server<CompileOrder, CompileFailure>;

function start(): CompileThread {
  return new Server((events) => startThread(thread, events), {
    errorOf: ({ failure, ended }) => {
      if (failure === undefined) return new CompileError('invalid', `the compiler died: ${ended.reason}`, []);
      const { code, message, obstacles } = failure;
      return new CompileError(code === 'unsupported' ? 'unsupported' : 'invalid', message, obstacles);
    },
  });
}
