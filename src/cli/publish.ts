import { Command, type AnyCommand, type OptionsOf } from './commander.ts';
import { asks, functionPath, type HostAddress } from './client.ts';
import { CliError, usage } from './error.ts';
import { formatBytes } from '../tools/index.ts';
import { startBytesProgress } from './progress.ts';
import { collectFiles, multipartBody, rawBody, upload } from './upload.ts';
import { appended, parsePairs } from './values.ts';

const publishFlags = () =>
  new Command('publish')
    .description(
      'Publish an ONNX model as a function on a running host. Files with external data are found beside the model ' +
        'and sent along. The version that serves now goes on until the new one has been checked and warmed up. ' +
        'Settings that are not given stay as they are.',
    )
    .argument('<name>', 'the function')
    .argument('<model>', 'the ONNX file')
    .option(
      '--set <key=value>',
      'a setting of the function, such as slo=250ms or batching.max=8 (repeatable)',
      appended,
      [],
    )
    .option('--slo <duration>', 'latency objective, such as 50ms; short for --set slo=50ms')
    .option('--batch <rows>', 'most rows of a run; short for --set batching.max=8')
    .option('--priority <number>', '1 is the highest; short for --set priority=1')
    .option('--pinned', 'keep it loaded; short for --set pinned=true')
    .option('--traffic <percent>', 'percent of the calls that the new version gets, the rest stays where it is', '100')
    .option('--no-traffic', 'give it no calls before `turntable promote`')
    .option('--version <version>', 'name of the version; the host counts up otherwise')
    .option('--json', 'print the reply of the host as it is');

type PublishOptions = OptionsOf<ReturnType<typeof publishFlags>>;

export function publishCommand(): AnyCommand {
  return asks(publishFlags(), async (host, name, modelPath, options) => {
    const settings = settingsOf(options);
    if (options.version !== undefined) settings.set('version', options.version);
    const files = await collectFiles(modelPath);
    const [model] = files;
    if (model === undefined) throw new CliError(`the model ${modelPath} has no file`);
    const single = files.length === 1;
    const path = functionPath('functions', name, undefined);
    const words = new URLSearchParams(single ? [...settings] : []);
    const percent = options.traffic === false ? '0' : options.traffic;
    if (percent !== '100') words.set('traffic', percent);
    const query = words.size > 0 ? `?${words.toString()}` : '';
    const body = single ? rawBody(model) : multipartBody(files, nestSettings(settings));
    const reply = await send(host, path + query, name, body);
    const existed = reply.status === 200;
    console.log(
      options.json === true
        ? reply.body.trimEnd()
        : describe(name, existed, reply.body, `${host.url}/function/${name}`),
    );
  });
}

/** The bar is gone before the reply is printed. */
async function send(host: HostAddress, path: string, name: string, body: ReturnType<typeof rawBody>) {
  using progress = startBytesProgress(`sending ${name}`, body.bytes);
  return await upload(host, path, body, (sent) => {
    progress.update(sent, sent === body.bytes ? 'the host checks the model' : undefined);
  });
}

function settingsOf({ set, slo, batch, priority, pinned }: PublishOptions): Map<string, string> {
  const short = { slo, 'batching.max': batch, priority, pinned: pinned === true ? 'true' : undefined };
  const words = Object.entries(short).flatMap(([key, value]) => (value === undefined ? [] : [`${key}=${value}`]));
  return parsePairs([...words, ...set], '--set', 'slo=250ms');
}

/** Dotted keys as nested objects; the host reads the text of numbers and booleans. */
export function nestSettings(settings: ReadonlyMap<string, string>): Record<string, unknown> {
  const nested: Record<string, unknown> = {};
  for (const [key, value] of settings) {
    const segments = key.split('.');
    const last = segments.pop() ?? key;
    let part = nested;
    for (const segment of segments) {
      const inner = Object.hasOwn(part, segment) ? part[segment] : {};
      if (typeof inner !== 'object' || inner === null) {
        throw usage(`--set names both "${segment}" and a part of it`);
      }
      put(part, segment, inner);
      part = inner as Record<string, unknown>;
    }
    put(part, last, value);
  }
  return nested;
}

/** Not an assignment: the key may be "__proto__", which the host is to refuse by name. */
const put = (part: object, key: string, value: unknown): unknown =>
  Object.defineProperty(part, key, { value, enumerable: true, configurable: true, writable: true });

function describe(name: string, existed: boolean, body: string, url: string): string {
  let reply: { version?: unknown; bytes?: unknown; sha256?: unknown; remarks?: unknown } = {};
  try {
    reply = JSON.parse(body) as typeof reply;
  } catch {
    // The status said that it worked; what else the host tells is an extra.
  }
  const version = typeof reply.version === 'string' ? ` version ${reply.version}` : '';
  const facts = [
    ...(typeof reply.bytes === 'number' ? [formatBytes(reply.bytes)] : []),
    ...(typeof reply.sha256 === 'string' ? [`sha256 ${reply.sha256.slice(0, 12)}`] : []),
  ];
  const note = facts.length > 0 ? ` (${facts.join(', ')})` : '';
  const done = existed ? `${name}${version} was published before${note}` : `published ${name}${version}${note}`;
  // The host serves some outputs otherwise than the model's file says.
  const remarks = Array.isArray(reply.remarks) ? reply.remarks.map((remark) => `note: ${remark}`) : [];
  return [`${done}: ${url}`, ...remarks].join('\n');
}
