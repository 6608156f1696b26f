/** A thread that makes programs of models: seconds of work for a large one, during which the GPU process must go on answering. */
import { parentPort } from 'node:worker_threads';
import { operators } from '../operators/index.ts';
import { compileModel, ProgramError, type InputShapes, type ProgramSettings } from '../program/index.ts';
import type { CompileAnswer } from './compiler.ts';

interface Order {
  readonly id: number;
  readonly modelPath: string;
  readonly shapes: InputShapes;
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
}

async function compile({ id, modelPath, shapes, cacheFolder, settings }: Order): Promise<CompileAnswer> {
  try {
    const options = { cacheFolder, ...(settings === undefined ? {} : { settings }) };
    return { id, ok: true, program: await compileModel(modelPath, shapes, operators, options) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    if (error instanceof ProgramError) return { id, ok: false, code: error.code, message, obstacles: error.obstacles };
    return { id, ok: false, code: 'model', message, obstacles: [] };
  }
}

parentPort!.on('message', (order: Order) => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
  void compile(order).then((answer) => parentPort!.postMessage(answer));
});
