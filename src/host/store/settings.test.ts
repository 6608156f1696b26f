import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { HostError } from '../errors.ts';
import {
  changedFurther,
  inheritSettings,
  parseFolderSettings,
  parseSettingsChange,
  parseUploadSettings,
  resolveSettings,
} from './settings.ts';

const defaults = { sloMs: 200, handlerMs: 1000, loadMs: 60_000, inferMs: 30_000 };
const sha256 = 'a'.repeat(64);

function problem(parse: () => unknown): string {
  try {
    parse();
  } catch (error) {
    if (error instanceof HostError && error.code === 'bad-settings') return error.message;
    throw error;
  }
  throw new Error('it was accepted');
}

function outcomeOf(parse: () => unknown): string {
  try {
    parse();
    return 'accepted';
  } catch (error) {
    return error instanceof HostError ? 'refused' : String(error);
  }
}

const folderProblem = (json: unknown): string => problem(() => parseFolderSettings(json));
const sloMsOf = (slo: string | number): number => resolveSettings(parseFolderSettings({ slo }), defaults).sloMs;
const uploadProblem = (json: unknown): string => problem(() => parseUploadSettings(json, sha256));

describe('durations', () => {
  test('text in ms or s and plain milliseconds are read', () => {
    expect(sloMsOf('250ms')).toBe(250);
    expect(sloMsOf('1.5s')).toBe(1500);
    expect(sloMsOf('0.5ms')).toBe(0.5);
    expect(sloMsOf(40)).toBe(40);
  });

  test.each(['', '5', 's', '-1s', '1 s', '1m', '1e3ms', ' 1s', 'Infinitys'])('%j is none', (slo) => {
    expect(folderProblem({ slo })).toContain("setting 'slo'");
  });

  test('whole milliseconds mean the same in every form', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 3600 }), (count) => {
        expect(sloMsOf(`${count}ms`)).toBe(count);
        expect(sloMsOf(count)).toBe(count);
        expect(sloMsOf(`${count}s`)).toBe(count * 1000);
      }),
    );
  });
});

describe('function.json', () => {
  test('every setting arrives where it belongs', () => {
    const given = parseFolderSettings({
      $schema: '../../wrangler-free-config/function.schema.json',
      description: 'names a language',
      version: '2',
      model: 'weights/model.onnx',
      slo: '100ms',
      handler: 'handler.ts',
      batching: { max: 8, delay: '2ms' },
      pinned: true,
      priority: 3,
      cpu: { instances: 2, threads: 1 },
      isolation: 'own',
      timeouts: { handler: '1.5s', load: '90s', infer: 250 },
    });
    expect(resolveSettings(given, defaults)).toEqual({
      description: 'names a language',
      model: 'weights/model.onnx',
      sloMs: 100,
      handler: 'handler.ts',
      batching: { batchMax: 8, delayMs: 2 },
      pinned: true,
      priority: 3,
      isolation: 'own',
      cpu: { instancesMax: 2, threads: 1 },
      timeouts: { handlerMs: 1500, loadMs: 90_000, inferMs: 250 },
    });
  });

  test('an empty one takes the defaults of the schema and of the host', () => {
    const settings = resolveSettings(parseFolderSettings({}), defaults);
    expect(settings).toEqual({
      description: '',
      model: 'model.onnx',
      sloMs: 200,
      handler: undefined,
      batching: { batchMax: 1, delayMs: 0 },
      pinned: false,
      priority: 100,
      isolation: 'shared',
      cpu: { instancesMax: undefined, threads: undefined },
      timeouts: { handlerMs: 1000, loadMs: 60_000, inferMs: 30_000 },
    });
  });

  test('every field of the schema is described', () => {
    const undescribed: string[] = [];
    const visit = (schema: { description?: string; properties?: Record<string, object> }, path: string): void => {
      for (const [name, field] of Object.entries<{ description?: string }>(schema.properties ?? {})) {
        if ((field.description ?? '').length < 20) undescribed.push(path + name);
        visit(field, `${path}${name}.`);
      }
    };
    visit(JSON.parse(readFileSync('wrangler-free-config/function.schema.json', 'utf8')), '');
    expect(undescribed).toEqual([]);
  });

  test('an unknown setting is refused with the nearest known one', () => {
    expect(folderProblem({ hander: 'h.ts' })).toBe("unknown setting 'hander': did you mean 'handler'?");
    expect(folderProblem({ batching: { maximum: 3 } })).toMatch(/^unknown setting 'batching\.maximum': /);
    expect(folderProblem({ cpu: { thread: 3 } })).toBe("unknown setting 'cpu.thread': did you mean 'cpu.threads'?");
    expect(folderProblem({ temperature: 1 })).toContain('known are description, example, labels, version, model, slo');
  });

  test('a wrong value is refused with the field, the value and what is allowed', () => {
    expect(folderProblem({ batching: { max: 0 } })).toBe(
      "setting 'batching.max' is 0, but must be a whole number from 1 to 4096",
    );
    expect(folderProblem({ pinned: 'yes' })).toBe(`setting 'pinned' is "yes", but must be true or false`);
    expect(folderProblem({ priority: 1.5 })).toContain("setting 'priority' is 1.5, but must be a whole number");
    expect(folderProblem({ cpu: 4 })).toBe("setting 'cpu' is 4, but must be an object with instances, threads");
    expect(folderProblem({ slo: '100' })).toContain(`setting 'slo' is "100", but must be a duration such as`);
    expect(folderProblem({ version: '../1' })).toContain("setting 'version'");
    expect(folderProblem({ handler: 'handler.py' })).toContain("setting 'handler'");
    expect(folderProblem([])).toBe('the settings are [], but must be a JSON object');
    expect(folderProblem(null)).toBe('the settings are null, but must be a JSON object');
  });

  test('the bounds of a duration hold for its text as for its number', () => {
    for (const slo of ['0ms', 0, '3601s', 3_600_001, '99999999999999999999s']) {
      expect(folderProblem({ slo })).toContain("setting 'slo'");
    }
    expect(folderProblem({ timeouts: { load: '0.5ms' } })).toContain("setting 'timeouts.load'");
    expect(folderProblem({ batching: { delay: '61s' } })).toContain("setting 'batching.delay'");
  });

  test('nothing but HostError comes out, whatever JSON goes in', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (json) => {
        for (const parse of [parseFolderSettings, (raw: unknown) => parseUploadSettings(raw, sha256)]) {
          expect(['accepted', 'refused']).toContain(outcomeOf(() => resolveSettings(parse(json), defaults)));
        }
      }),
    );
  });
});

describe('settings of an upload', () => {
  test('an example is the text of a body, and never a file', () => {
    expect(parseUploadSettings({ example: 'Guten Tag' }, sha256)).toEqual({ example: 'Guten Tag' });
    expect(problem(() => parseUploadSettings({ example: '@/etc/passwd' }, sha256))).toContain(
      "cannot bring a file as its 'example'",
    );
    expect(problem(() => parseUploadSettings({ example: 'two\nlines' }, sha256))).toContain("setting 'example'");
  });

  test('text from a query becomes what the field asks for', () => {
    const query = {
      slo: '40ms',
      pinned: 'true',
      priority: '7',
      'batching.max': '4',
      'batching.delay': '1ms',
      cpu: { threads: '2' },
      version: 12,
      description: 5,
    };
    expect(parseUploadSettings(query, sha256)).toEqual({
      slo: '40ms',
      pinned: true,
      priority: 7,
      batching: { max: 4, delay: '1ms' },
      cpu: { threads: 2 },
      version: '12',
      description: '5',
    });
    expect(parseUploadSettings(undefined, sha256)).toEqual({});
  });

  test('a group may come nested and with dots at once', () => {
    expect(parseUploadSettings({ 'batching.max': '4', batching: { delay: '2ms' } }, sha256)).toEqual({
      batching: { max: 4, delay: '2ms' },
    });
  });

  test('a handler is refused with the reason', () => {
    expect(uploadProblem({ handler: 'handler.ts' })).toContain('handlers come from the functions folder only');
  });

  test('the model may be named by its hash, and no other may', () => {
    expect(parseUploadSettings({ model: `sha256:${sha256}` }, sha256)).toEqual({});
    expect(parseUploadSettings({ model: 'model.onnx' }, sha256)).toEqual({});
    expect(uploadProblem({ model: 'other.onnx' })).toContain("always 'model.onnx'");
    expect(uploadProblem({ model: `sha256:${'b'.repeat(64)}` })).toContain('always');
  });

  test('text that is no number is refused as it was sent', () => {
    expect(uploadProblem({ priority: 'high' })).toContain(`setting 'priority' is "high"`);
    expect(uploadProblem({ 'batching.max': '' })).toContain(`setting 'batching.max' is ""`);
    expect(uploadProblem({ pinned: '1' })).toContain('true or false');
    expect(uploadProblem({ 'batching.maxx': '3' })).toContain("did you mean 'batching.max'?");
    expect(uploadProblem({ 'slo.x': '3' })).toContain("'slo' has no parts");
  });

  test.each(['__proto__', 'constructor', 'toString', '__proto__.polluted', 'constructor.prototype'])(
    'the key %j is an unknown setting and changes no prototype',
    (key) => {
      expect(uploadProblem(JSON.parse(`{${JSON.stringify(key)}: {"polluted": true}}`))).toContain('unknown setting');
      expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    },
  );
});

describe('changes of settings', () => {
  test('null resets a setting or a group, and a group without settings goes', () => {
    const before = { slo: '50ms', batching: { max: 4, delay: '1ms' }, cpu: { threads: 2 } };
    const change = parseSettingsChange({ slo: null, batching: { max: null, delay: 3 }, cpu: { threads: null } });
    expect(change).toEqual({ set: { batching: { delay: 3 } }, unset: ['slo', 'batching.max', 'cpu.threads'] });
    expect(changedFurther(before, change)).toEqual({ batching: { delay: 3 } });
    expect(changedFurther(before, parseSettingsChange({ batching: null, cpu: {} }))).toEqual({
      slo: '50ms',
      cpu: { threads: 2 },
    });
  });

  test('an unknown setting, a part that is none, and no setting at all are refused', () => {
    expect(problem(() => parseSettingsChange({ batching: { maxx: null } }))).toContain("did you mean 'batching.max'?");
    expect(problem(() => parseSettingsChange({ 'slo.x': null }))).toContain("'slo' has no parts");
    expect(problem(() => parseSettingsChange({ hander: {} }))).toContain("did you mean 'handler'?");
    expect(problem(() => parseSettingsChange({ slo: { x: 1 } }))).toContain('must be a duration');
    expect(problem(() => parseSettingsChange({ batching: {} }))).toBe('the change names no setting');
    expect(problem(() => parseSettingsChange({ slo: null, version: '2' }))).toContain(
      "setting 'version' cannot change",
    );
  });

  test('a new version inherits each setting of a group separately, and not the name of the version', () => {
    const before = { version: '1', slo: 40, batching: { max: 4, delay: 2 }, cpu: { threads: 2 } };
    expect(inheritSettings({ version: '2', batching: { max: 8 }, cpu: {} }, before)).toEqual({
      version: '2',
      slo: 40,
      batching: { max: 8, delay: 2 },
      cpu: { threads: 2 },
    });
  });
});

test('what an upload leaves out comes from the function.json of its name', () => {
  const base = parseFolderSettings({
    handler: 'handler.ts',
    model: 'm.onnx',
    slo: '50ms',
    batching: { max: 16, delay: '1ms' },
  });
  const settings = resolveSettings(parseUploadSettings({ 'batching.max': '2' }, sha256), defaults, base);
  expect(settings).toMatchObject({
    handler: 'handler.ts',
    model: 'model.onnx',
    sloMs: 50,
    batching: { batchMax: 2, delayMs: 1 },
  });
});
