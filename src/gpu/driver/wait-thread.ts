/** The thread of waiter.ts. It blocks in this loop, so it reads its messages itself. */
import { receiveMessageOnPort, workerData } from 'node:worker_threads';
import { waitFunctions } from './declarations.ts';
import { bind, loadLibrary } from './libraries.ts';
import { notReady } from './status.ts';
import { waitThreadState, type WaitRequest, type WaitResult, type WaitThreadOptions } from './wait-protocol.ts';

/** A sleep between polls is 2% of the time that the newest event was waited for, within these bounds. */
const sleepMsMin = 0.02;
const sleepMsMax = 0.2;
const sleepShare = 0.02;

const { libraryFile, port, signal } = workerData as WaitThreadOptions;
const driver = bind(loadLibrary('libcuda', { path: libraryFile }), waitFunctions);

let waiting: (WaitRequest & { readonly sinceMs: number })[] = [];
let context = 0;
let running = true;
Atomics.store(signal, 1, waitThreadState.running);
while (running) {
  const seen = Atomics.load(signal, 0);
  for (let received = receive(); received !== undefined; received = receive()) {
    if (received === 'stop') running = false;
    else waiting.push({ ...received, sinceMs: performance.now() });
  }
  if (!running) break;
  if (waiting.length === 0) {
    Atomics.wait(signal, 0, seen);
    continue;
  }
  const results: WaitResult[] = [];
  waiting = waiting.filter(({ id, context: owner, event }) => {
    const status = query(owner, event);
    if (status === notReady) return true;
    results.push({ id, status });
    return false;
  });
  if (results.length > 0) {
    port.postMessage(results);
  } else {
    const waitedMs = performance.now() - Math.max(...waiting.map(({ sinceMs }) => sinceMs));
    Atomics.wait(signal, 0, seen, Math.min(sleepMsMax, Math.max(sleepMsMin, waitedMs * sleepShare)));
  }
}
Atomics.store(signal, 1, waitThreadState.ended);
Atomics.notify(signal, 1);
port.close();

function receive(): WaitRequest | 'stop' | undefined {
  return receiveMessageOnPort(port)?.message as WaitRequest | 'stop' | undefined;
}

function query(owner: number, event: number): number {
  if (owner !== context) {
    const status = driver.cuCtxSetCurrent(owner);
    if (status !== 0) return status;
    context = owner;
  }
  return driver.cuEventQuery(event);
}
