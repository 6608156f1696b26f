/** The host's own management of functions: publish, list, remove, and blobs by hash. */
import { HostError } from '../errors.ts';
import type { FunctionVersion, Publication } from '../types.ts';
import { mapInSlices } from '../limits/slices.ts';
import { functionPath, functionView } from './describe.ts';
import { clientSignal, type Exchange } from './exchange.ts';
import { changeAsked, versionAsked, type HostContext } from './host-context.ts';
import { parseJsonObject } from '../infer/json-body.ts';
import { percentAsked } from './version-routes.ts';
import { readForm } from './multipart.ts';

/** Limit of settings sent as JSON, when the model is a stored blob. */
const settingsBytesMax = 256 * 1024;
/** What a form adds to its files; the store counts the files themselves. */
const formOverheadBytes = 4 * 1024 * 1024;

export async function listFunctions(context: HostContext, exchange: Exchange): Promise<void> {
  const { store } = context;
  await exchange.list(async () => {
    const functions = await mapInSlices(store.names(), (name) => {
      const current = store.find(name);
      if (current === undefined) return undefined;
      return { ...functionView(current, context), versions: store.versions(name).map(({ version }) => version) };
    });
    return { functions: functions.filter((each) => each !== undefined) };
  });
}

export function showFunction(context: HostContext, exchange: Exchange): void {
  const { store } = context;
  const version = versionAsked(context, exchange);
  const versions = store.versions(version.name).map((each) => each.version);
  exchange.json(200, { ...functionView(version, context), versions });
}

export async function removeFunction(context: HostContext, exchange: Exchange): Promise<void> {
  await changeAsked(context, exchange, []);
  await context.store.remove(exchange.pathParam('name'), exchange.param('version'));
  exchange.send(204, [], []);
}

/**
 * `PUT /functions/{name}`. The body is the model itself; a form with the model, its settings and further files; or JSON
 * settings whose model is an already stored blob. Settings may be in the query as well.
 */
export async function publishFunction(context: HostContext, exchange: Exchange): Promise<void> {
  const name = exchange.pathParam('name');
  const settings = querySettings(exchange);
  const kind = bodyKind(exchange);
  if (kind === 'settings') {
    const body = await context.bodies.read(exchange, settingsBytesMax);
    for (const [key, value] of Object.entries(parseJsonObject(body, 'the body'))) setOnce(settings, key, value);
  }
  if (kind === 'settings' && !settings.has('model')) {
    const advice = "send the model itself as the body, or name a stored blob: 'sha256:' and its hexadecimal digits";
    throw new HostError('bad-request', `the JSON settings have no 'model'; ${advice}`);
  }
  const publisher = { name: context.access.callerOf(exchange), signal: clientSignal(exchange.incoming.socket) };
  const publication = await context.store.beginPublish(name, versionSetting(settings), publisher);
  try {
    if (kind === 'form') await receiveForm(context, exchange, publication, settings);
    else if (kind === 'model') await receiveModel(context, exchange, publication, settings);
    if (kind !== 'model') await takeBlob(publication, settings);
    const percent = trafficSetting(settings);
    const { version, created } = await publication.commit(Object.fromEntries(settings), true);
    const serving = context.store.find(name);
    // For the first version there is no other to serve meanwhile.
    const waits = created && percent > 0 && serving !== undefined && serving.key !== version.key;
    if (waits) await promoteUnlessRemoved(context, version, percent);
    const path = functionPath(version);
    exchange.json(created ? 201 : 200, functionView(version, context), ['Location', path]);
  } catch (error) {
    await publication.abort();
    throw error;
  }
}

/** @throws HostError 'unknown-version' if another request has deleted the version since it was published */
async function promoteUnlessRemoved(
  { rollout, store }: HostContext,
  published: FunctionVersion,
  percent: number,
): Promise<void> {
  try {
    await rollout.promote(published, percent);
  } catch (error) {
    const { name, version, publishedAtMs } = published;
    if (store.find(name, version)?.publishedAtMs === publishedAtMs) throw error;
    throw new HostError(
      'unknown-version',
      `version ${version} of function '${name}' was published, and then deleted by another request before it served`,
      { cause: error },
    );
  }
}

/** curl's --data-binary claims form-urlencoded by default, so only multipart forms and JSON are distinguished. */
function bodyKind(exchange: Exchange): 'form' | 'settings' | 'model' {
  const type = exchange.header('content-type')?.split(';', 1)[0]?.trim().toLowerCase();
  if (type === 'multipart/form-data') return 'form';
  return type === 'application/json' ? 'settings' : 'model';
}

async function receiveModel(
  { bodies, config }: HostContext,
  exchange: Exchange,
  publication: Publication,
  settings: Map<string, unknown>,
): Promise<void> {
  const { headers } = exchange.incoming;
  const empty = headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0;
  if (settings.has('model')) {
    if (!empty) throw new HostError('bad-request', "the request has both a body and a 'model' that names a blob");
    await takeBlob(publication, settings);
    return;
  }
  if (empty) throw new HostError('bad-request', 'the body is empty, where the bytes of an ONNX model are expected');
  await publication.writeFile('model.onnx', bodies.stream(exchange, config.limits.uploadBytesMax));
}

async function receiveForm(
  { bodies, config }: HostContext,
  exchange: Exchange,
  publication: Publication,
  settings: Map<string, unknown>,
): Promise<void> {
  const body = bodies.stream(exchange, config.limits.uploadBytesMax + formOverheadBytes);
  await readForm(exchange.header('content-type') ?? '', body, {
    writeFile: async (filename, stream) => await publication.writeFile(filename, stream),
    set: (key, value) => setOnce(settings, key, value),
  });
}

async function takeBlob(publication: Publication, settings: ReadonlyMap<string, unknown>): Promise<void> {
  const model = settings.get('model');
  if (model === undefined) return;
  const [, sha256] = typeof model === 'string' ? (/^sha256:([0-9a-f]{64})$/.exec(model) ?? []) : [];
  if (sha256 === undefined) {
    throw new HostError(
      'bad-settings',
      "setting 'model' is not 'sha256:' and the 64 hexadecimal digits of a stored blob",
    );
  }
  await publication.useBlob('model.onnx', sha256);
}

function querySettings(exchange: Exchange): Map<string, unknown> {
  const settings = new Map<string, unknown>();
  for (const [key, value] of exchange.query()) setOnce(settings, key, value);
  return settings;
}

function setOnce(settings: Map<string, unknown>, key: string, value: unknown): void {
  if (settings.has(key)) throw new HostError('bad-settings', `setting '${key.slice(0, 80)}' is given twice`);
  settings.set(key, value);
}

/** Percent of the calls for the new version: all, unless `traffic` says less. It is no setting of the function. */
function trafficSetting(settings: Map<string, unknown>): number {
  const given = settings.get('traffic');
  settings.delete('traffic');
  return Number(given) === 0 && given !== '' ? 0 : percentAsked(given);
}

/** The version, if it is known before the upload begins. In a form it may follow: the store sees it at the end. */
function versionSetting(settings: ReadonlyMap<string, unknown>): string | undefined {
  const version = settings.get('version');
  if (typeof version === 'number') return String(version);
  return typeof version === 'string' ? version : undefined;
}

/** `HEAD /blobs/sha256:{hex}` */
export function blobExists({ store }: HostContext, exchange: Exchange): void {
  if (!store.hasBlob(digestAsked(exchange))) throw new HostError('unknown-blob', 'no blob with this sha256 is stored');
  exchange.send(200, [], []);
}

/** `POST /blobs/sha256:{hex}`: 201, or 200 if it is stored already. */
export async function putBlob(context: HostContext, exchange: Exchange): Promise<void> {
  const sha256 = digestAsked(exchange);
  const stored = context.store.hasBlob(sha256);
  if (!stored)
    await context.store.putBlob(sha256, context.bodies.stream(exchange, context.config.limits.uploadBytesMax));
  exchange.json(stored ? 200 : 201, { digest: `sha256:${sha256}` });
}

/** @throws HostError 'bad-request' */
export function digestAsked(exchange: Exchange): string {
  const digest = exchange.pathParam('digest');
  const [, sha256] = /^sha256:([0-9a-f]{64})$/.exec(digest) ?? [];
  if (sha256 === undefined) {
    throw new HostError('bad-request', "the path does not end in 'sha256:' and 64 lower-case hexadecimal digits");
  }
  return sha256;
}
