/** What passing a call costs by its bytes, beside a bare echo of them over TLS with the same certificates. */
import { readFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { Worker } from 'node:worker_threads';
import { writeReluModel } from '../../test/support/models.ts';
import { median } from '../shared/statistics.ts';
import { binaryRequest, mustSend } from '../shared/requests.ts';
import type { FleetSystem } from './system.ts';

export interface SizeCosts {
  readonly bytes: number;
  readonly localMs: number;
  readonly passedMs: number;
  readonly echoMs: number;
}

/** Floats in and out: 4 KB, 602 KB, 4 MB. */
const widths = [1024, 150_528, 1_048_576];

/** Medians, after a warm-up of as many calls. Local, passed and echoed calls alternate. */
export async function measureSizes(system: FleetSystem, calls: number, sizes: number): Promise<SizeCosts[]> {
  const echo = await startEcho(system);
  try {
    const costs: SizeCosts[] = [];
    for (const width of widths.slice(0, sizes)) {
      const name = `wide-${width}`;
      const model = await readFile(await writeReluModel(system.folder, width));
      await mustSend(`${system.urls[0]!}/functions/${name}?slo=60s`, { method: 'PUT', body: model });
      costs.push(await measureSize(system, name, width, calls, echo.ask));
    }
    return costs;
  } finally {
    await echo.close();
  }
}

async function measureSize(
  system: FleetSystem,
  name: string,
  width: number,
  calls: number,
  echo: (data: Buffer) => Promise<void>,
): Promise<SizeCosts> {
  const data = Buffer.alloc(4 * width);
  const sent = { method: 'POST', ...binaryRequest([1, width], new Float32Array(width)) };
  const times: Record<'local' | 'passed' | 'echo', number[]> = { local: [], passed: [], echo: [] };
  for (let index = 0; times.local.length < 2 * calls || times.passed.length < 2 * calls; index++) {
    const url = system.urls[index % system.urls.length]!;
    let fromMs = performance.now();
    const { placement } = await mustSend(`${url}/v2/models/${name}/infer`, sent);
    times[placement.startsWith('host ') ? 'passed' : 'local'].push(performance.now() - fromMs);
    fromMs = performance.now();
    await echo(data);
    times.echo.push(performance.now() - fromMs);
    if (index > 5000 + 10 * calls)
      throw new Error(`${name} runs at ${times.passed.length === 0 ? 'each host' : 'no home'}`);
  }
  const [localMs, passedMs, echoMs] = [times.local, times.passed, times.echo].map((all) => median(all.slice(calls)));
  return { bytes: data.byteLength, localMs: localMs!, passedMs: passedMs!, echoMs: echoMs! };
}

/** Sends back what comes, on a thread of its own as a host has a process of its own. */
const echoCode = `
const { createServer } = require('node:tls');
const { parentPort, workerData } = require('node:worker_threads');
const server = createServer({ ...workerData, requestCert: true, minVersion: 'TLSv1.3' }, (socket) => {
  socket.setNoDelay(true);
  socket.on('error', () => undefined);
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

async function startEcho(system: FleetSystem) {
  const worker = new Worker(echoCode, { eval: true, workerData: system.pems });
  const [port] = (await once(worker, 'message')) as [number];
  const socket = connect({ host: '127.0.0.1', port, ...system.pems, minVersion: 'TLSv1.3' });
  await once(socket, 'secureConnect');
  socket.setNoDelay(true);
  return {
    ask: async (data: Buffer): Promise<void> =>
      await new Promise((resolve) => {
        let left = data.byteLength;
        const take = (chunk: Buffer): void => {
          left -= chunk.byteLength;
          if (left > 0) return;
          socket.off('data', take);
          resolve();
        };
        socket.on('data', take);
        socket.write(data);
      }),
    close: async (): Promise<void> => {
      socket.destroy();
      await worker.terminate();
    },
  };
}
