/** What passing a call costs by its bytes, beside a bare echo of them over TLS with the same certificates. */
import { readFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { Worker } from 'node:worker_threads';
import { writeReluModel } from '../../test/support/models.ts';
import { median } from '../servers.ts';
import { send } from './load.ts';
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
      const { status, body: said } = await send(system.urls[0]!, 'PUT', `/functions/${name}?slo=60s`, model);
      if (status !== 201) throw new Error(`${name} was not published: ${status} ${said}`);
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
  const input = { name: 'x', datatype: 'FP32', shape: [1, width], parameters: { binary_data_size: data.byteLength } };
  const header = JSON.stringify({ inputs: [input], parameters: { binary_data_output: true } });
  const body = Buffer.concat([Buffer.from(header), data]);
  const headers = { 'Inference-Header-Content-Length': Buffer.byteLength(header) };
  const times: Record<'local' | 'passed' | 'echo', number[]> = { local: [], passed: [], echo: [] };
  for (let index = 0; times.local.length < 2 * calls || times.passed.length < 2 * calls; index++) {
    const url = system.urls[index % system.urls.length]!;
    let fromMs = performance.now();
    const { status, placement, body: said } = await send(url, 'POST', `/v2/models/${name}/infer`, body, headers);
    if (status !== 200) throw new Error(`${name}: ${status} ${said.slice(0, 200)}`);
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
