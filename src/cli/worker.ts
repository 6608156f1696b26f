import { hostname } from 'node:os';
import { join } from 'node:path';
import { Command, Option, type AnyCommand, type OptionsOf } from './commander.ts';
import { ownMemory, readCores } from '../hardware/index.ts';
import { tellServiceManager } from '../process/index.ts';
import { createLogger } from '../host/index.ts';
import { storeAt } from './store-at.ts';
import { loadRedisQueue, parseRedisUrl, PoolTaker, redisUrlForm, redisWorks } from '../queue/index.ts';
import { CliError, usage } from './error.ts';
import { outliveDefects } from './uncaught.ts';
import { runUntilSignal } from './lifecycle.ts';
import { logOtherOutput, outliveOutput } from './output.ts';
import { packageVersion } from './package.ts';
import { counted } from './table.ts';
import { parseBytes, parseCount, parseWaitMs } from './values.ts';

/** Redis may start a moment later than the worker. */
const redisWaitMs = 10_000;

const workerFlags = () =>
  new Command('worker')
    .description(
      'Take overflow of the hosts that use the same Redis, on the cores of this machine. Models are fetched from the ' +
        "hosts' store by their sha256 and kept within --cache. SIGTERM and SIGINT let what runs finish and give back " +
        'what waits.',
    )
    .addOption(
      new Option('--redis <url>', 'address of Redis: redis://, rediss:// or unix://')
        .env('TURNTABLE_REDIS_URL')
        .default('redis://127.0.0.1:6379'),
    )
    .addOption(
      new Option('--prefix <text>', 'what the keys in Redis begin with; as at the hosts')
        .env('TURNTABLE_REDIS_PREFIX')
        .default('turntable'),
    )
    .option('--name <name>', 'name in placements, metrics and lists', hostname())
    .option('--cores <number>', 'cores to run on (default: those that this process may use)', parseCount)
    .option('--threads <number>', 'threads of an instance, unless its function says', parseCount, 1)
    .option('--data <folder>', 'where fetched models are kept', 'worker-data')
    .addOption(
      new Option('--cache <size>', 'most bytes of models that are kept')
        .argParser(parseBytes)
        .default(20 * 2 ** 30, '20GiB'),
    )
    .addOption(
      new Option(
        '--store <place>',
        "the hosts' store: a folder, s3://BUCKET/PREFIX or the address of a bucket; by default the data folder of a host " +
          'on this machine',
      ).env('TURNTABLE_STORE'),
    )
    .addOption(
      new Option('--drain <time>', 'for what runs to finish after a signal')
        .argParser(parseWaitMs)
        .default(30_000, '30s'),
    )
    .addOption(
      new Option('--log-level <level>', 'least important level that is written')
        .choices(['debug', 'info', 'warn', 'error', 'silent'])
        .default('info'),
    );

type WorkerFlags = OptionsOf<ReturnType<typeof workerFlags>>;

export function workerCommand(): AnyCommand {
  return workerFlags().action(async (flags) => {
    outliveOutput();
    process.exit(await runWorker(flags));
  });
}

async function runWorker(flags: WorkerFlags): Promise<number> {
  if (parseRedisUrl(flags.redis) === undefined) throw usage(`--redis must be ${redisUrlForm}`);
  if (!/^[\x21-\x7e]{1,64}$/.test(flags.name)) {
    throw usage('--name is not made of at most 64 visible characters without spaces');
  }
  const { usable } = readCores();
  const { cores: coresAsked = usable, drain: drainMs } = flags;
  const cores = Math.min(coresAsked, usable);
  const threads = Math.min(cores, flags.threads);
  const store = await storeAt(flags.store);
  const logger = createLogger({ level: flags.logLevel, format: process.stderr.isTTY ? 'pretty' : 'json' });
  logOtherOutput(logger);

  if (coresAsked > usable) logger.warn({ asked: coresAsked, cores }, '--cores is more than this process may use');

  const { RedisLink, startRemoteWorker } = await loadRedisQueue();
  const link = new RedisLink({ url: flags.redis, prefix: flags.prefix, log: logger });
  try {
    await link.ready(redisWaitMs);
  } catch (error) {
    link.close();
    throw new CliError(`${(error as Error).message}; start redis-server, or name another with --redis`, {
      cause: error,
    });
  }
  link.onHealth((health, before) => {
    if (!redisWorks(health)) logger.warn({ redis: link.address, ...health }, 'Redis is gone; waiting for it');
    else if (!redisWorks(before)) logger.info({ redis: link.address }, 'Redis is back');
  });
  const { parts: memory } = ownMemory('worker');
  const taker = new PoolTaker({
    name: flags.name,
    cores,
    pools: {
      blankInstances: Math.min(2, cores),
      memoryBytes: memory.sessions,
      loadsBytes: memory.loads,
      log: (pid, key, line) => logger.info({ pid, function: key }, line),
      warn: (line) => logger.warn(line),
      onRowsMix: ({ key, reason }) => logger.error({ function: key, reason }, 'its calls run alone from now on'),
      cacheFolder: join(flags.data, 'weights'),
    },
    store,
    models: join(flags.data, 'models'),
    modelBytesMax: flags.cache,
    threads,
    queueMax: 1024,
    idleMs: 300_000,
    log: logger,
  });
  await taker.start();
  const worker = await startRemoteWorker({ link, taker, version: packageVersion(), log: logger });
  outliveDefects({ log: logger, exit: (code) => process.exit(code) });
  tellServiceManager('READY=1');
  const stop = async (): Promise<boolean> => {
    const clean = await worker.stop(drainMs);
    await taker.stop();
    link.close();
    logger.info({ clean, answered: worker.answered }, 'stopped');
    return clean;
  };
  // A program that learns that the worker is ready may end it at once, so signals are handled first.
  const ended = runUntilSignal({ stop }, { drainMs, log: logger });
  const name = `Turntable ${packageVersion()} worker ${flags.name}`;
  process.stdout.write(`${name} takes overflow on ${counted(cores, 'core')} (Redis at ${link.address})\n`);
  return await ended;
}
