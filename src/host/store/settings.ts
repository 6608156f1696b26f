/** `function.json` and the settings of uploads: checked against the schema, then filled in with defaults. */
import type { ErrorObject } from 'ajv';
import type { ProgramPrecision } from '../../gpu/index.ts';
import { schemaErrors } from '../../hardware/index.ts';
import { given as definedOf, parseDurationMs } from '../../tools/index.ts';
import { shown } from '../config/config-error.ts';
import {
  configOptions,
  isWithinRange,
  meaningOf,
  readConfigSchema,
  valueOfText,
  wantedInstead,
  type ConfigOption,
} from '../config/options.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import { isObject } from '../infer/json-body.ts';
import type { FunctionSettings, SettingsOverride } from '../types.ts';
import { quoted, uploadedModel } from './names.ts';
import { nearest } from '../config/nearest.ts';

/** Text such as "250ms" or "1.5s", or a number of milliseconds. */
export type Duration = string | number;

/** Settings as their author wrote them, checked against the schema. */
export interface GivenSettings {
  readonly $schema?: string;
  readonly description?: string;
  readonly example?: string;
  readonly labels?: string;
  readonly version?: string;
  readonly model?: string;
  readonly slo?: Duration;
  readonly handler?: string;
  readonly batching?: { readonly max?: number; readonly delay?: Duration; readonly assume?: 'independent' };
  readonly pinned?: boolean;
  readonly priority?: number;
  readonly admission?: FunctionSettings['admission'];
  readonly isolation?: 'own' | 'shared';
  readonly gpu?: { readonly precision?: ProgramPrecision };
  readonly cpu?: { readonly instances?: number; readonly threads?: number };
  readonly timeouts?: { readonly handler?: Duration; readonly load?: Duration; readonly infer?: Duration };
}

const schema = readConfigSchema('function.schema.json');
const settings = new Map(configOptions(schema).map((setting) => [setting.path, setting]));
const errorsOf = schemaErrors('function.schema.json');

/** Reads the text of a `function.json`, which editors may begin with a byte order mark. */
export function readFolderSettings(text: string): GivenSettings {
  let json: unknown;
  try {
    json = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (error) {
    throw refused(`it is not JSON (${(error as Error).message})`);
  }
  return parseFolderSettings(json);
}

/** Throws HostError 'bad-settings' with a sentence that names the field and what it allows. */
export function parseFolderSettings(json: unknown): GivenSettings {
  const errors = errorsOf(json);
  if (errors.length > 0) throw refused(sentenceFor(errors));
  const given = json as GivenSettings;
  checkDurations(given);
  return given;
}

/**
 * Checks the settings of an upload. They may come from a query string, so text is accepted for a number or boolean, and
 * `batching.max` for `max` in `batching`. Throws HostError 'bad-settings'.
 *
 * @param modelSha256 the uploaded model's own: `model` may name it, as `sha256:<hex>`.
 */
export function parseUploadSettings(raw: unknown, modelSha256: string): GivenSettings {
  const given = parseFolderSettings(coerced(raw ?? {}));
  if (given.handler !== undefined) {
    throw refused("an upload cannot bring a 'handler': handlers come from the functions folder only");
  }
  if (given.example?.startsWith('@') === true) {
    throw refused("an upload cannot bring a file as its 'example': it is the text of a body");
  }
  if (given.labels?.startsWith('@') === true) {
    throw refused("an upload cannot bring a file as its 'labels': they are the text itself, one label a line");
  }
  if (given.model !== undefined && given.model !== uploadedModel && given.model !== `sha256:${modelSha256}`) {
    throw refused(`setting 'model' is ${quoted(given.model)}, but the model of an upload is always '${uploadedModel}'`);
  }
  const { $schema: _schema, model: _model, ...kept } = given;
  return kept;
}

/** Settings to change without an upload, and settings to reset to the published ones. */
export interface SettingsChange {
  readonly set: GivenSettings;
  /** Such as `slo`, `batching` or `batching.max`. */
  readonly unset: readonly string[];
}

/**
 * Checks the body of `PATCH /functions/{name}` like an upload's settings; null resets a setting to the published one.
 * Throws HostError 'bad-settings'.
 */
export function parseSettingsChange(raw: Readonly<Record<string, unknown>>): SettingsChange {
  for (const key of ['version', 'model', 'handler']) {
    if (!Object.hasOwn(raw, key)) continue;
    throw refused(`setting '${key}' cannot change without a new version: publish one, or edit the function's folder`);
  }
  const entries = flat(raw);
  const unset = entries.flatMap(([path, value]) => (value === null ? [path] : []));
  for (const path of unset) known(path);
  if (entries.length === 0) throw refused('the change names no setting');
  const set = entries.filter(([, value]) => value !== null);
  return { set: parseUploadSettings(Object.fromEntries(set), ''), unset };
}

/** Combines earlier changes with the new ones. */
export function changedFurther(before: GivenSettings, { set, unset }: SettingsChange): GivenSettings {
  const isUnset = (path: string): boolean => unset.some((key) => path === key || path.startsWith(`${key}.`));
  return nested(flat(inheritSettings(set, before)).filter(([path]) => !isUnset(path)));
}

/** Settings that a new version omits are inherited from the version before: each field of a group separately. */
export function inheritSettings(given: GivenSettings, before: GivenSettings): GivenSettings {
  const { version: _version, ...kept } = before;
  return nested([...flat(kept), ...flat(given)]);
}

type PathEntry = readonly [path: string, value: unknown];

/** Each setting with its path: `{ slo: 40, batching: { max: 4 } }` has `slo` and `batching.max`. */
function flat(settings: object): PathEntry[] {
  return Object.entries(settings).flatMap(([key, value]: PathEntry): PathEntry[] => {
    const isGroup = own(schema.properties, key)?.properties !== undefined;
    if (!isGroup || !isObject(value)) return [[key, value]];
    return Object.entries(value).map(([leaf, inner]) => [`${key}.${leaf}`, inner]);
  });
}

/** The settings with these paths, which must be known ones; of two values for one path the later counts. */
function nested(entries: readonly PathEntry[]): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const [path, value] of entries) {
    const [group, leaf] = splitOnce(path);
    settings[group] = leaf === undefined ? value : { ...(settings[group] as object | undefined), [leaf]: value };
  }
  return settings;
}

/** What the schema gives a setting that nobody has set. */
const usual: readonly PathEntry[] = [...settings.values()].flatMap(({ path, default: value }): PathEntry[] =>
  value === undefined ? [] : [[path, value]],
);

/** Settings in which the defaults are filled in. */
type Filled = GivenSettings &
  Required<Pick<GivenSettings, 'description' | 'model' | 'slo' | 'pinned' | 'priority' | 'isolation'>> & {
    readonly batching: { readonly max: number; readonly delay: Duration };
    readonly timeouts: Required<NonNullable<GivenSettings['timeouts']>>;
  };

/**
 * Fills in settings that `given` omits: first from `base` (for an upload the `function.json` of the same name, whose
 * handler it keeps), then from the host's defaults, then from the schema's.
 */
export function resolveSettings(
  given: GivenSettings,
  { sloMs, handlerMs, loadMs, inferMs }: HostConfig['defaults'],
  { model: _model, ...base }: GivenSettings = {},
): FunctionSettings {
  const ofHost = { slo: sloMs, timeouts: { handler: handlerMs, load: loadMs, infer: inferMs } };
  const filled = nested([...usual, ...[ofHost, base, given].flatMap(flat)]) as unknown as Filled;
  const { example, labels, batching, cpu, timeouts } = filled;
  return {
    description: filled.description,
    ...definedOf({ example, labels: labels === undefined ? undefined : linesOf(labels) }),
    model: filled.model,
    sloMs: ms(filled.slo),
    handler: filled.handler,
    batching: { batchMax: batching.max, delayMs: ms(batching.delay), ...definedOf({ assume: batching.assume }) },
    pinned: filled.pinned,
    priority: filled.priority,
    admission: filled.admission,
    cpu: { instancesMax: cpu?.instances, threads: cpu?.threads },
    isolation: filled.isolation,
    ...(filled.gpu?.precision === undefined ? {} : { gpu: { precision: filled.gpu.precision } }),
    timeouts: { handlerMs: ms(timeouts.handler), loadMs: ms(timeouts.load), inferMs: ms(timeouts.infer) },
  };
}

/** One label a line; the last line may lack its line break. */
const linesOf = (text: string): string[] => text.replace(/\r?\n$/, '').split(/\r?\n/);

export function overridden(settings: FunctionSettings, override: SettingsOverride): FunctionSettings {
  const { batching, cpu } = settings;
  const { rowsMax, batchMax, delayMs, instancesMax } = override;
  return {
    ...settings,
    ...(rowsMax === undefined ? {} : { rowsMax }),
    batching: { ...batching, batchMax: batchMax ?? batching.batchMax, delayMs: delayMs ?? batching.delayMs },
    cpu: { ...cpu, instancesMax: instancesMax ?? cpu.instancesMax },
  };
}

const ms = (duration: Duration): number => parseDurationMs(duration) ?? NaN;

function checkDurations(given: GivenSettings): void {
  for (const [path, value] of flat(given)) {
    const setting = settings.get(path);
    if (setting?.kind !== 'duration' || isWithinRange(setting, meaningOf(setting, value, ''))) continue;
    throw refused(wrongValue(path, value));
  }
}

/** One sentence for the first error; an unknown field explains more than the errors that follow from it. */
function sentenceFor(errors: readonly ErrorObject[]): string {
  const error = errors.find(({ keyword }) => keyword === 'additionalProperties') ?? errors[0];
  if (error === undefined) return 'the settings do not fit their schema';
  const path = error.instancePath.slice(1).replaceAll('/', '.');
  if (error.keyword === 'additionalProperties') {
    const unknown = String((error.params as { additionalProperty: unknown }).additionalProperty);
    return unknownSetting(unknown, path);
  }
  if (path === '') return `the settings are ${shown(error.data)}, but must be a JSON object`;
  return wrongValue(path, error.data);
}

/** The names in a group; those of all settings and groups for ''. */
const namesIn = (group: string): string[] =>
  Object.keys((group === '' ? schema : own(schema.properties, group))?.properties ?? {}).filter(
    (name) => name !== '$schema',
  );

function unknownSetting(name: string, group: string): string {
  const known = namesIn(group);
  const prefix = group === '' ? '' : `${group}.`;
  const near = nearest(name, known);
  const hint =
    near === undefined
      ? `known ${group === '' ? 'are' : `in '${group}' are`} ${known.join(', ')}`
      : `did you mean '${prefix}${near}'?`;
  return `unknown setting ${quoted(`${prefix}${name}`)}: ${hint}`;
}

function wrongValue(path: string, value: unknown): string {
  const setting = settings.get(path);
  const wanted =
    setting === undefined ? `must be an object with ${namesIn(path).join(', ')}` : wantedInstead(setting, value);
  return `setting '${path}' is ${shown(value)}, but ${wanted}`;
}

function refused(sentence: string): HostError {
  return new HostError('bad-settings', sentence);
}

function coerced(raw: unknown): unknown {
  if (!isObject(raw)) return raw;
  // A sender's key is set only if the schema knows it, so that `__proto__` is an unknown setting like any other.
  return nested(flat(raw).map(([path, value]) => [path, coercedValue(value, known(path))]));
}

/** The setting of a path; undefined for a group. @throws HostError 'bad-settings' where there is neither */
function known(path: string): ConfigOption | undefined {
  const [group, leaf] = splitOnce(path);
  const field = own(schema.properties, group);
  if (field === undefined) throw refused(unknownSetting(group, ''));
  if (leaf === undefined) return settings.get(group);
  if (field.properties === undefined) throw refused(`unknown setting ${quoted(path)}: '${group}' has no parts`);
  if (own(field.properties, leaf) === undefined) throw refused(unknownSetting(leaf, group));
  return settings.get(path);
}

function coercedValue(value: unknown, setting: ConfigOption | undefined): unknown {
  if (setting === undefined) return value;
  if (setting.kind === 'text') return typeof value === 'number' ? String(value) : value;
  return typeof value === 'string' ? valueOfText(setting, value) : value;
}

function splitOnce(key: string): [group: string, leaf: string | undefined] {
  const dot = key.indexOf('.');
  return dot < 0 ? [key, undefined] : [key.slice(0, dot), key.slice(dot + 1)];
}

function own<Value>(record: Readonly<Record<string, Value>> | undefined, key: string): Value | undefined {
  return record !== undefined && Object.hasOwn(record, key) ? record[key] : undefined;
}
