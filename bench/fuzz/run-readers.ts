/** Reads inputs in another process. If one crashes or hangs it, the batch is read one by one to find the input. */
import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { compileProgram } from '../../test/support/compile-program.ts';
import { projectRoot } from '../servers.ts';
import { inputOf, type Finding, type Order, type Report } from './readers.ts';

/** Far longer than a batch takes, however busy the machine. */
const hungMs = 60_000;

export class ReaderProcess implements Disposable {
  #child: ChildProcess | undefined;

  /** Never throws: a process that ends or hangs is a finding about the inputs of this order. */
  async run(order: Order): Promise<Report> {
    const report = await this.#ask(order);
    if (typeof report !== 'string') return report;
    if (order.to - order.from === 1) {
      const inputBase64 = inputOf(order, order.from).toString('base64');
      const what = `${report} at input ${order.from} of seed ${order.seed}`;
      return { findings: [{ reader: order.reader, what, inputBase64 }], refused: 0 };
    }
    const findings: Finding[] = [];
    let refused = 0;
    for (let number = order.from; number < order.to; number++) {
      const one = await this.run({ ...order, from: number, to: number + 1 });
      findings.push(...one.findings);
      refused += one.refused;
    }
    return { findings, refused };
  }

  [Symbol.dispose](): void {
    this.#child?.kill('SIGKILL');
  }

  async #ask(order: Order): Promise<Report | string> {
    const child = (this.#child ??= fork(await compileProgram(join(import.meta.dirname, 'child.ts')), {
      cwd: projectRoot,
      execArgv: ['--max-old-space-size=1024'],
    }));
    return await new Promise((resolve) => {
      const over = (outcome: Report | string): void => {
        clearTimeout(timer);
        child.removeAllListeners();
        if (typeof outcome === 'string') {
          child.kill('SIGKILL');
          this.#child = undefined;
        }
        resolve(outcome);
      };
      const timer = setTimeout(() => over('the reader hangs'), hungMs);
      child.once('message', (report) => over(report as Report));
      child.once('exit', (code, signal) => over(`the reader's process ended with ${signal ?? code}`));
      child.send(order);
    });
  }
}
