/** The OpenAPI 3.1 description of the host's HTTP API, generated from the table of routes. */
import { errorSchema, inferRequestSchema, replySchemas } from './openapi-schemas.ts';
import type { Route } from './route.ts';
import { getOrMake } from '../../tools/index.ts';

const json = (name: string): object => ({
  'application/json': { schema: { $ref: `#/components/schemas/${name}` } },
});

export function openApi(routes: readonly Route[], version: string): object {
  const paths = new Map<string, Map<string, object>>();
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)(?:\{.+?\})?/g, '{$1}');
    getOrMake(paths, path, () => new Map()).set(route.method.toLowerCase(), operationOf(route));
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Turntable', version, description: 'A function host for ONNX models.' },
    paths: Object.fromEntries([...paths].map(([path, methods]) => [path, Object.fromEntries(methods)])),
    components: {
      schemas: { ...replySchemas, InferRequest: inferRequestSchema, Error: errorSchema },
      securitySchemes: { apiKey: { type: 'http', scheme: 'bearer' } },
    },
  };
}

function operationOf({ method, path, handler, about, reply, scope }: Route): object {
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name]) => name);
  return {
    summary: about,
    operationId: `${handler.name}-${method.toLowerCase()}${path.replaceAll(/[^A-Za-z0-9]+/g, '-')}`,
    security: scope === 'open' ? [] : [{ apiKey: [scope] }],
    parameters: names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...(path.endsWith('/infer') ? { requestBody: { required: true, content: json('InferRequest') } } : undefined),
    responses: {
      '2XX': { description: about, ...(reply === undefined ? undefined : { content: json(reply) }) },
      default: {
        description: 'What went wrong, in one sentence; its code is in the header X-Turntable-Error',
        content: json('Error'),
      },
    },
  };
}
