/** The compiler's side of the folding process: started when it is needed, shared by all who need it, ended when idle. */
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ProgramError } from './error.ts';
import type { FoldedOutput, FoldReply, FoldRequest } from './fold-protocol.ts';

/** From src/ (tests, tsx) the process runs the compiled file all the same: Node 20 cannot run TypeScript. */
const processPath = fileURLToPath(
  new URL(
    import.meta.url.endsWith('.ts') ? '../../../dist/gpu/program/fold-process.js' : './fold-process.js',
    import.meta.url,
  ),
);

/** Long enough that the shapes of a function, compiled one after the other, share a process. */
const idleMsMax = 5_000;

interface Task {
  readonly resolve: (outputs: readonly FoldedOutput[]) => void;
  readonly reject: (error: ProgramError) => void;
}

class FoldProcess {
  readonly #child: ChildProcess;
  readonly #tasks = new Map<number, Task>();
  readonly #ended: () => void;
  #next = 0;
  #idle: NodeJS.Timeout | undefined;
  #lastWords = '';

  constructor(ended: () => void) {
    this.#ended = ended;
    this.#child = fork(processPath, [], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'], execArgv: [] });
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      this.#lastWords = (this.#lastWords + chunk.toString('utf8')).slice(-400);
    });
    this.#child.on('message', (message) => {
      const { id, reply } = message as { id: number; reply: FoldReply };
      const task = this.#tasks.get(id);
      this.#tasks.delete(id);
      if (this.#tasks.size === 0) this.#rest();
      if (reply.ok) task?.resolve(reply.outputs);
      else task?.reject(new ProgramError('folding', `ONNX Runtime refuses the graph: ${reply.message}`));
    });
    this.#child.on('error', (error) => this.#end(error.message));
    this.#child.on('exit', (code, signal) => this.#end(`it ended with ${signal ?? `status ${code}`}`));
  }

  send(request: FoldRequest): Promise<readonly FoldedOutput[]> {
    clearTimeout(this.#idle);
    this.#hold(true);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#tasks.set(id, { resolve, reject });
      this.#child.send({ id, request }, (error) => {
        if (error !== null) this.#end(error.message);
      });
    });
  }

  /** Waiting for nothing, it must not keep the host from ending. */
  #rest(): void {
    this.#hold(false);
    this.#idle = setTimeout(() => {
      this.#ended();
      this.#child.disconnect();
    }, idleMsMax);
    this.#idle.unref();
  }

  #hold(held: boolean): void {
    const { channel, stderr } = this.#child;
    const socket = stderr as { ref?: () => void; unref?: () => void } | null;
    if (held) {
      this.#child.ref();
      channel?.ref();
      socket?.ref?.();
    } else {
      this.#child.unref();
      channel?.unref();
      socket?.unref?.();
    }
  }

  #end(reason: string): void {
    this.#ended();
    clearTimeout(this.#idle);
    const words = this.#lastWords.trim();
    const message = `the process that folds graphs is gone: ${reason}${words === '' ? '' : ` (${words})`}`;
    for (const task of this.#tasks.values()) task.reject(new ProgramError('folding', message));
    this.#tasks.clear();
  }
}

let current: FoldProcess | undefined;

/**
 * Has the folding process do something; rejects with {@link ProgramError} `folding` when ONNX Runtime refuses, or when the
 * process dies of it (the next request then gets a new one).
 */
export function fold(request: FoldRequest): Promise<readonly FoldedOutput[]> {
  if (current === undefined) {
    const started: FoldProcess = new FoldProcess(() => {
      if (current === started) current = undefined;
    });
    current = started;
  }
  return current.send(request);
}
