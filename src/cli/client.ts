/** The commands' side of a running host's HTTP interface. */
import { Option, type Command } from 'commander';
import { CliError } from './error.ts';

/** Where a running host is, and the key for its management. */
export interface HostAddress {
  readonly url: string;
  readonly apiKey: string | undefined;
}

const defaultUrl = 'http://127.0.0.1:8000';

export function addUrlFlag(command: Command): Command {
  const option = new Option('--url <url>', 'address of the host').env('TURNTABLE_URL').default(defaultUrl);
  return command.addOption(option);
}

/** Checks the address. The key comes from TURNTABLE_API_KEY only: every user of a machine can read command lines. */
export function hostAddress(url: string, environment: NodeJS.ProcessEnv = process.env): HostAddress {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) {
    throw new CliError(`--url is "${url}", but must be an address such as ${defaultUrl}`, { exitCode: 2 });
  }
  const apiKey = environment['TURNTABLE_API_KEY'];
  return { url: parsed.href.replace(/\/+$/, ''), apiKey: apiKey === '' ? undefined : apiKey };
}

export function authorization({ apiKey }: HostAddress): Record<string, string> {
  return apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
}

/** Path of a function, or of one version, below `prefix` ("functions" or "function"). */
export function functionPath(prefix: string, name: string, version: string | undefined): string {
  const path = `/${prefix}/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}/versions/${encodeURIComponent(version)}`;
}

/** One request whose reply is read whole. Throws {@link CliError} unless the host answered with success. */
export async function request(host: HostAddress, path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(host.url + path, {
      ...init,
      headers: { ...authorization(host), ...(init.headers as Record<string, string> | undefined) },
    });
  } catch (error) {
    throw connectionError(host, error);
  }
  if (!response.ok) throw replyError(response.status, await response.text());
  return response;
}

/** The sentence that a host's error reply holds, with what the user can do where that is known. */
export function replyError(status: number, body: string): CliError {
  let sentence = body.trim().slice(0, 500);
  try {
    const { error } = JSON.parse(body) as { error?: unknown };
    if (typeof error === 'string') sentence = error;
  } catch {
    // Not a host of ours, or something between: its own words are the best there is.
  }
  const hint = status === 401 || status === 403 ? ' (the key is taken from TURNTABLE_API_KEY)' : '';
  return new CliError(`${sentence || 'the host gave no reason'}${hint} [HTTP ${status}]`);
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
