/** Workers in a process of their own. The order is the first argument, as JSON. */
import { join } from 'node:path';
import { PoolTaker, type FunctionManifest } from '../../src/queue/index.ts';
import { RedisLink } from '../../src/queue/redis-link.ts';
import { startRemoteWorker } from '../../src/queue/worker.ts';
import { FolderStore } from '../../src/store/index.ts';
import { silentLog } from '../../test/support/silent-log.ts';
import { TimedTaker, type Speed } from './takers.ts';

export interface WorkersOrder {
  readonly redisUrl: string;
  readonly prefix: string;
  readonly workers: number;
  /** Undefined: models, whose files are in the store of this folder. */
  readonly speed: Speed | undefined;
  readonly folder: string;
  readonly manifests: readonly FunctionManifest[];
}

const order = JSON.parse(process.argv[2]!) as WorkersOrder;
const takers: TimedTaker[] = [];
for (let number = 0; number < order.workers; number++) {
  const link = new RedisLink({ url: order.redisUrl, prefix: order.prefix });
  await link.ready(10_000);
  await startRemoteWorker({ link, taker: await takerOf(number), log: silentLog });
}
process.stdout.write('ready\n');
process.stdin.on('data', () => {
  process.stdout.write(`${JSON.stringify({ loads: takers.reduce((sum, { loads }) => sum + loads, 0) })}\n`);
});
process.stdin.on('end', () => process.exit());

async function takerOf(number: number): Promise<TimedTaker | PoolTaker> {
  const name = `worker-${number}`;
  if (order.speed !== undefined) {
    const taker = new TimedTaker(name, order.speed);
    takers.push(taker);
    return taker;
  }
  const taker = new PoolTaker({
    name,
    cores: 1,
    pools: { blankInstances: 1, memoryBytes: 2 ** 30, log: () => undefined },
    store: new FolderStore(join(order.folder, 'store')),
    models: join(order.folder, name),
    modelBytesMax: 1e9,
    threads: 1,
    queueMax: 1024,
    idleMs: 300_000,
    log: silentLog,
  });
  await taker.start();
  return taker;
}
