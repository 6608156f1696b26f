import { watchFile } from 'node:fs';
import type { Logger } from 'pino';
import { Command, Option, type AnyCommand } from './commander.ts';
import {
  checkListen,
  createLogger,
  exampleCall,
  loadConfig,
  startHost,
  type HostConfig,
  type InvocationRecorder,
  type ListedFunction,
  type RunningHost,
} from '../host/index.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { CliError } from './error.ts';
import { httpFetch } from './http-fetch.ts';
import { tellServiceManager } from '../process/index.ts';
import { asCalled, formatMs, type Log } from '../tools/index.ts';
import { outliveDefects } from './uncaught.ts';
import { packageVersion } from './package.ts';
import { logOtherOutput, outliveOutput } from './output.ts';
import type { Recording } from './recording.ts';
import { printable, renderTable } from './table.ts';
import { runUntilSignal } from './lifecycle.ts';
import { listIn } from './values.ts';

/** Polled: the file may be behind links that are swapped, as Kubernetes does, and on any file system. */
const keysLookMs = 5000;
/** Enough for a first look; the host's first page has them all. */
const callsShown = 5;

export function serveCommand(): AnyCommand {
  const command = new Command('serve').description(
    'Start the host. Options come from defaults, the configuration file, TURNTABLE_* variables and these flags, the ' +
      'last of which wins; docs/configuration.md has them all. SIGTERM, SIGINT and the end of its terminal let accepted ' +
      'requests finish; a second signal ends the host at once.',
  );
  addConfigFlags(command)
    .addOption(
      new Option('--record <folder>', 'record the traffic as a trace there, for turntable replay --trace').helpGroup(
        'Files:',
      ),
    )
    .action(async (options, called) => {
      outliveOutput();
      const input = configInputOf(called);
      const { config, file, warnings } = loadConfig(input);
      const logger = createLogger(config.log);
      logOtherOutput(logger);
      for (const warning of warnings) logger.warn(asCalled(warning));
      checkListen(config);
      const startedMs = performance.now();
      const recording = options.record === undefined ? undefined : await record(options.record, logger);
      const host = await start(config, logger, recording);
      outliveDefects({ log: logger, exit: (code) => process.exit(code) });
      // A program that learns that the host is ready may end it at once, so signals are handled first.
      const reload = (): void => host.reloadKeys(() => loadConfig(input).config.apiKeys);
      if (file !== undefined) watchFile(file, { interval: keysLookMs, persistent: false }, reload);
      const ended = runUntilSignal(host, { drainMs: config.drainMs, log: logger, reload });
      tellServiceManager('READY=1');
      await announce(host, performance.now() - startedMs);
      const exitCode = await ended;
      await recording?.close();
      process.exit(exitCode);
    });
  return command;
}

/** Loaded only with --record: the code of replay loads the planners too, which a host does not need. */
async function record(folder: string, log: Log): Promise<Recording> {
  return await (await import('./recording.ts')).startRecording(folder, log);
}

async function start(
  config: HostConfig,
  logger: Logger,
  recorder: InvocationRecorder | undefined,
): Promise<RunningHost> {
  try {
    return await startHost(config, { logger, recorder, isAlone: true });
  } catch (error) {
    throw listenError(config, error);
  }
}

/** The operating system's errors about addresses and folders, in words; other errors are returned unchanged. */
export function listenError(
  { listen, dataDir }: { readonly listen: Pick<HostConfig['listen'], 'host' | 'port'>; readonly dataDir: string },
  error: unknown,
): unknown {
  if (!(error instanceof Error) || !('code' in error)) return error;
  const { host } = listen;
  const isGrpc = 'grpcPort' in error;
  const port = isGrpc ? Number(error.grpcPort) : listen.port;
  const flag = isGrpc ? '--grpc-port' : '--port';
  const noWriting = `the data folder ${dataDir} cannot be written: ${error.message}`;
  const noAddress = `the name ${host} in listen.host has no address`;
  const words = new Map<unknown, string>([
    [
      'EADDRINUSE',
      `port ${port} on ${host} is in use by another program; choose another with ${flag} (0 takes a free one)`,
    ],
    ['EADDRNOTAVAIL', `this machine has no address ${host} to listen on; choose another with --host`],
    [
      'EACCES',
      'syscall' in error && error.syscall === 'listen'
        ? `port ${port} needs privileges that this process lacks; choose one above 1023 with --port`
        : noWriting,
    ],
    ['EROFS', noWriting],
    ['EPERM', noWriting],
    ['ENOTFOUND', noAddress],
    ['EAI_AGAIN', noAddress],
  ]).get(error.code);
  return words === undefined ? error : new CliError(words, { cause: error });
}

/** Prints the ready line, and on a terminal also the functions and calls to try. */
async function announce({ url }: RunningHost, tookMs: number): Promise<void> {
  const ready = `Turntable ${packageVersion()} is ready at ${url} (started in ${formatMs(tookMs)})`;
  if (!process.stdout.isTTY) {
    process.stdout.write(`${ready}\n`);
    return;
  }
  const functions = await httpFetch(`${url}/functions`)
    .then(async (response) => listIn<ListedFunction>(await response.json(), 'functions'))
    .catch(() => []);
  // A terminal that does not know its size says 0.
  const width = process.stdout.columns > 0 ? process.stdout.columns : Infinity;
  process.stdout.write(`${ready}\n\n${describeFunctions(url, functions, width)}\n`);
}

/** The functions with a call to try, as the terminal shows them. */
export function describeFunctions(
  url: string,
  functions: readonly Partial<ListedFunction>[],
  width = Infinity,
): string {
  if (functions.length === 0) {
    return `No functions yet. Publish one:\n  curl -T model.onnx ${url}/functions/my-model`;
  }
  const table = renderTable(
    ['FUNCTION', 'STATE', 'DESCRIPTION'],
    functions.map(({ name = '', state = '', description = '', reason = description }) => [name, state, reason]),
  );
  const lines = table.split('\n').map((line) => (line.length > width ? `${line.slice(0, width - 1)}…` : line));
  return `${lines.join('\n')}\n\nTry:\n${callsToTry(url, functions)
    .map((call) => `  ${call}`)
    .join('\n')}`;
}

/** A call of each function that has an example. Without any, a request for the metadata of the first function. */
function callsToTry(url: string, functions: readonly Partial<ListedFunction>[]): string[] {
  const named = functions.flatMap(({ name = '', state, example }) =>
    example === undefined || state !== 'ready' ? [] : [exampleCall(url, name, printable(example))],
  );
  return named.length === 0 ? [`curl -s ${url}/v2/models/${functions[0]?.name ?? ''}`] : named.slice(0, callsShown);
}
