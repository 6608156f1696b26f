/** How commands talk to a running host over HTTP. */
import { Option, type AnyCommand, type Command, type OptionValues } from './commander.ts';
import { ConnectionError, errorOf, path, Turntable, TurntableError, UnauthorizedError } from '../client/index.ts';
import { CliError, usage } from './error.ts';
import { httpFetch } from './http-fetch.ts';

/** Where a running host is, and the key for its management. */
export interface HostAddress {
  readonly url: string;
  readonly apiKey: string | undefined;
}

/**
 * Where a host on this machine listens by the variables that `turntable serve` reads: TURNTABLE_PORT moves both.
 * TURNTABLE_URL names any host, and comes first.
 */
export function defaultUrl(environment: NodeJS.ProcessEnv = process.env): string {
  const port = environment['TURNTABLE_PORT'] ?? environment['TURNTABLE_LISTEN_PORT'] ?? '';
  // With port 0 the host has picked a free port, which is not known here.
  return `http://127.0.0.1:${/^[1-9]\d{0,4}$/.test(port) ? port : 8000}`;
}

export const urlOption = () =>
  new Option('--url <url>', 'address of the host').env('TURNTABLE_URL').default(defaultUrl());

/** What an action gets. */
type Given<Args extends unknown[], Options extends OptionValues> = [...Args, Options, Command<Args, Options>];

/**
 * Has a command ask a running host.
 *
 * @param act gets the host before the command's own arguments and options
 */
export function asks<Args extends unknown[], Options extends OptionValues>(
  command: Command<Args, Options>,
  act: (host: HostAddress, ...given: Given<Args, Options>) => Promise<void>,
): AnyCommand {
  command.addOption(urlOption());
  return command.action(async (...given) => {
    await act(hostAddress(String(command.getOptionValue('url'))), ...given);
  });
}

/** The same with `--json`, printing what `act` resolves to: as JSON, or in the words of `text`. */
export function shows<Args extends unknown[], Options extends OptionValues, Reply>(
  command: Command<Args, Options>,
  act: (client: Turntable, ...given: Given<Args, Options>) => Promise<Reply>,
  text: (reply: Reply, ...given: Given<Args, Options>) => string,
): AnyCommand {
  command.option('--json', 'print the reply of the host as it is');
  return asks(command, async (host, ...given) => {
    const reply = await withHost(host, async (client) => await act(client, ...given));
    console.log(command.getOptionValue('json') === true ? JSON.stringify(reply) : text(reply, ...given));
  });
}

/** The JSON that a host answers to a GET. */
export async function replyOf(client: Turntable, where: string): Promise<unknown> {
  return await (await client.request(where)).json();
}

/** Checks the address. The key comes from TURNTABLE_API_KEY only: every user of a machine can read command lines. */
export function hostAddress(url: string, environment: NodeJS.ProcessEnv = process.env): HostAddress {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
    const name = url === environment['TURNTABLE_URL'] ? 'TURNTABLE_URL' : '--url';
    throw usage(`${name} is "${url}", but must be an address such as ${defaultUrl({})}`);
  }
  const apiKey = environment['TURNTABLE_API_KEY'];
  return { url: parsed.href.replace(/\/+$/, ''), apiKey: apiKey === '' ? undefined : apiKey };
}

export function authorization({ apiKey }: HostAddress): Record<string, string> {
  return apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
}

/** Path of a function, or of one version, below `prefix` ("functions" or "function"). */
export const functionPath = (prefix: string, name: string, version: string | undefined): string =>
  path(`/${prefix}`, name, version);

/** What `act` does with the client of the host. Throws {@link CliError} unless the host answered with success. */
export async function withHost<Result>(
  host: HostAddress,
  act: (client: Turntable) => Promise<Result>,
): Promise<Result> {
  try {
    return await act(new Turntable({ ...host, fetch: httpFetch as typeof fetch }));
  } catch (error) {
    if (error instanceof ConnectionError) throw connectionError(host, error.cause);
    if (error instanceof CliError) throw error;
    throw error instanceof TurntableError ? spoken(error) : connectionError(host, error);
  }
}

/** One request. Throws {@link CliError} unless the host answered with success. */
export async function request(host: HostAddress, where: string, init: RequestInit = {}): Promise<Response> {
  return await withHost(host, async (client) => await client.request(where, init));
}

/** The sentence that a host's error reply holds, with what the user can do where that is known. */
export const replyError = (status: number, body: string): CliError => spoken(errorOf(status, body, new Headers()));

function spoken(error: TurntableError): CliError {
  const hint = error instanceof UnauthorizedError ? ' (the key is taken from TURNTABLE_API_KEY)' : '';
  return new CliError(`${error.message}${hint} [HTTP ${error.status}]`);
}

export function connectionError(host: HostAddress, error: unknown): CliError {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
  if (code === 'ECONNREFUSED') {
    return new CliError(
      `no host answers at ${host.url}; start one with 'turntable serve', or name another with --url`,
      {
        cause: error,
      },
    );
  }
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new CliError(`the host at ${host.url} could not be reached: ${reason}`, { cause: error });
}
