/** The host's OpenAPI description against its answers; and KServe's REST calls against the same schemas. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

interface Operation {
  readonly operationId: string;
  readonly parameters: readonly { readonly name: string }[];
  readonly responses: Readonly<Record<string, { readonly content?: Record<string, { schema: { $ref: string } }> }>>;
}

interface Description {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

let host: ReluHost;
let description: Description;
let ajv: Ajv2020;
beforeAll(async () => {
  host = await startReluHost(['relu']);
  description = (await (await fetch(`${host.url}/openapi.json`)).json()) as Description;
  ajv = new Ajv2020({ strict: false });
  ajv.addSchema({ $id: 'openapi', ...description });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

function schema(name: string): ValidateFunction {
  expect(Object.keys(description.components.schemas)).toContain(name);
  return ajv.compile({ $ref: `openapi#/components/schemas/${name}` });
}

/** The problems of a value by the schema of that name. */
function problems(name: string, value: unknown): unknown {
  const validate = schema(name);
  return validate(value) ? [] : validate.errors;
}

const named = (path: string): string =>
  path.replace('{name}', 'relu').replace('{version}', '1').replace('{region}', 'r');

test('is OpenAPI 3.1, with an operation for each route', () => {
  expect(description.openapi).toBe('3.1.0');
  const ids = Object.values(description.paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId }) => operationId),
  );
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.length).toBeGreaterThan(60);
  for (const [path, methods] of Object.entries(description.paths)) {
    const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    for (const { parameters } of Object.values(methods)) expect(parameters.map(({ name }) => name)).toEqual(inPath);
  }
});

test('the answer of every readable path fits its schema', async () => {
  let checked = 0;
  for (const [path, { get }] of Object.entries(description.paths)) {
    const $ref = get?.responses['2XX']?.content?.['application/json']?.schema.$ref;
    if ($ref === undefined || path.startsWith('/async-function')) continue;
    const reply = await fetch(host.url + named(path));
    expect(reply.status, path).toBe(200);
    expect(problems($ref.split('/').at(-1)!, await reply.json()), path).toEqual([]);
    checked++;
  }
  expect(checked).toBeGreaterThan(20);
});

test('every failure is an Error', async () => {
  for (const path of ['/v2/models/none', '/nowhere', '/v2/models/relu/versions/9/ready', '/async-function/x']) {
    const reply = await fetch(host.url + path);
    expect(reply.status).toBeGreaterThanOrEqual(400);
    expect(problems('Error', await reply.json())).toEqual([]);
  }
});

const post = async (path: string, body: unknown): Promise<unknown> => {
  const reply = await fetch(host.url + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: reply.status, body: await reply.json() };
};

describe("KServe's REST client", () => {
  test('infers with a request and a reply of the protocol', async () => {
    const request = {
      id: '42',
      inputs: [{ name: 'x', shape: [2, 4], datatype: 'FP32', data: [[-1, 2, -3, 4], [5, -6, 7, -8]], parameters: {} }], // prettier-ignore
      outputs: [{ name: 'y' }],
    };
    expect(problems('InferRequest', request)).toEqual([]);
    const { status, body } = (await post('/v2/models/relu/versions/1/infer', request)) as {
      status: number;
      body: object;
    };
    expect(status).toBe(200);
    expect(problems('InferReply', body)).toEqual([]);
    expect(body).toEqual({
      id: '42',
      model_name: 'relu',
      model_version: '1',
      outputs: [{ name: 'y', datatype: 'FP32', shape: [2, 4], data: [0, 2, 0, 4, 5, 0, 7, 0] }],
    });
  });

  test('loads and unloads', async () => {
    for (const [action, name] of [
      ['load', 'Loaded'],
      ['unload', 'Unloaded'],
      ['load', 'Loaded'],
    ] as const) {
      const { status, body } = (await post(`/v2/repository/models/relu/${action}`, {})) as {
        status: number;
        body: object;
      };
      expect([status, problems(name, body)]).toEqual([200, []]);
    }
  });
});
