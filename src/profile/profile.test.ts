import { describe, expect, test } from 'vitest';
import { parseGraphProfile, parsePoolProfile, parseServiceProfile, ProfileError, resolveEdges } from './index.ts';

const pool = { unit: 'ms', threads: [1, 2], batches: [1, 4], latency: [[5, 16], [3, null]] }; // prettier-ignore
const service = { unit: 'ms', configurations: [{ concurrency: 2, threads: 4, nodes: 1, serviceTime: [10, 12] }] };
const bytes = { input: 1, output: 2, ephemeral: 3, weights: 4 };
const node = { name: 'a', gpu: 1, cpu: [2, 3], bytes };
const graph = {
  unit: 'ms',
  nodes: [node, { ...node, name: 'b' }],
  edges: [
    ['a', 'b', 8],
    [0, 1, 8],
  ],
  bandwidth: 12,
  latency: 0.06,
};

/** The message of the ProfileError that a parser throws. */
function refusal(parse: () => unknown): string {
  try {
    parse();
  } catch (error) {
    if (error instanceof ProfileError) return error.message;
    throw error;
  }
  return 'accepted';
}

test('valid profiles are accepted unchanged, notes included', () => {
  expect(parsePoolProfile({ ...pool, model: 'a note' })).toMatchObject(pool);
  expect(parseServiceProfile(service)).toBe(service);
  expect(parseGraphProfile(graph)).toBe(graph);
});

describe('a pool profile is refused, and the message names the wrong field', () => {
  test.each([
    ['no object', [], 'the pool profile is a list of 0, but must be an object with unit, threads, batches, latency'],
    ['no latency', { ...pool, latency: undefined }, "has no field 'latency'"],
    ['another unit', { ...pool, unit: 's' }, `field 'unit' of the pool profile is "s", but must be "ms"`],
    ['no threads', { ...pool, threads: [] }, "field 'threads' of the pool profile is a list of 0"],
    ['threads of text', { ...pool, threads: ['1', 2] }, `field 'threads[0]' of the pool profile is "1"`],
    ['a fraction of a batch', { ...pool, batches: [1, 1.5] }, "field 'batches[1]' of the pool profile is 1.5"],
    ['unsorted batches', { ...pool, batches: [4, 1] }, "field 'batches[1]' of the pool profile is 1 after 4"],
    ['the same threads twice', { ...pool, threads: [2, 2] }, "field 'threads[1]'"],
    ['a time of zero', { ...pool, latency: [[0, 1], [1, 1]] }, "'latency[0][0]' of the pool profile is 0, but must be a number above 0 or null"], // prettier-ignore
    ['a negative time', { ...pool, latency: [[1, 1], [1, -2]] }, "field 'latency[1][1]' of the pool profile is -2"], // prettier-ignore
    ['a missing row', { ...pool, latency: [[1, 1]] }, "field 'latency' of the pool profile has 1 rows"],
    ['a short row', { ...pool, latency: [[1, 1], [1]] }, "field 'latency[1]' of the pool profile has 1 entries"], // prettier-ignore
  ])('%s', (_what, json, sentence) => {
    expect(refusal(() => parsePoolProfile(JSON.parse(JSON.stringify(json))))).toContain(sentence);
  });
});

test('a number beyond the range of doubles is refused as Infinity', () => {
  const json: unknown = JSON.parse('{"unit":"ms","threads":[1],"batches":[1],"latency":[[1e999]]}');
  expect(refusal(() => parsePoolProfile(json))).toContain("field 'latency[0][0]' of the pool profile is Infinity");
});

describe('a service profile is refused, and the message names the wrong field', () => {
  const [first] = service.configurations;
  const withFirst = (change: object): object => ({ unit: 'ms', configurations: [{ ...first, ...change }] });

  test.each([
    ['no configurations', { unit: 'ms', configurations: [] }, "field 'configurations' of the service profile"],
    [
      'a time too few',
      withFirst({ serviceTime: [10] }),
      "'configurations[0].serviceTime' of the service profile has 1",
    ],
    ['a negative time', withFirst({ serviceTime: [10, -1] }), "field 'configurations[0].serviceTime[1]'"],
    ['no threads', withFirst({ threads: 0 }), "'configurations[0].threads' of the service profile is 0, but must be a whole number from 1 to 4096"], // prettier-ignore
    ['a typo', withFirst({ node: 2 }), "unknown field 'configurations[0].node' (known there: concurrency, threads, nodes, serviceTime)"], // prettier-ignore
    ['the same configuration twice', { unit: 'ms', configurations: [first, first] }, "field 'configurations[1]'"],
  ])('%s', (_what, json, sentence) => {
    expect(refusal(() => parseServiceProfile(json))).toContain(sentence);
  });

  test('nodes may be left out', () => {
    const { nodes: _nodes, ...rest } = first as (typeof service.configurations)[number];
    expect(parseServiceProfile({ unit: 'ms', configurations: [rest] }).configurations).toEqual([rest]);
  });
});

describe('a graph profile is refused, and the message names the wrong field', () => {
  const withNode = (change: object): object => ({ ...graph, nodes: [node, { ...node, name: 'b', ...change }] });

  test.each([
    ['no bandwidth', { ...graph, bandwidth: undefined }, "has no field 'bandwidth'"],
    ['a bandwidth of zero', { ...graph, bandwidth: 0 }, "field 'bandwidth' of the graph profile is 0"],
    ['a negative latency', { ...graph, latency: -1 }, "field 'latency' of the graph profile is -1"],
    ['a name twice', withNode({ name: 'a' }), `field 'nodes[1].name' of the graph profile is "a"`],
    ['an operator without bytes', withNode({ bytes: undefined }), "has no field 'nodes[1].bytes'"],
    ['no weights', withNode({ bytes: { ...bytes, weights: undefined } }), "has no field 'nodes[1].bytes.weights'"],
    ['negative bytes', withNode({ bytes: { ...bytes, output: -1 } }), "field 'nodes[1].bytes.output'"],
    ['ragged CPU times', withNode({ cpu: [1] }), "field 'nodes[1].cpu' of the graph profile has 1 entries"],
    ['a GPU time of text', withNode({ gpu: 'fast' }), `field 'nodes[1].gpu' of the graph profile is "fast", but must be a number of 0 or more or null`], // prettier-ignore
    ['an edge to nowhere', { ...graph, edges: [['a', 'c', 1]] }, `field 'edges[0][1]' of the graph profile is "c"`],
    ['an edge beyond the end', { ...graph, edges: [[2, 0, 1]] }, "field 'edges[0][0]' of the graph profile is 2"],
    ['an edge to itself', { ...graph, edges: [['a', 0, 1]] }, "field 'edges[0]' of the graph profile leads"],
    [
      'an edge without bytes',
      { ...graph, edges: [['a', 'b']] },
      "field 'edges[0]' of the graph profile is a list of 2",
    ],
    ['weights that are shared but differ', { ...graph, nodes: [{ ...node, shares: 'W' }, { ...node, name: 'b', shares: 'W', bytes: { ...bytes, weights: 5 } }] }, `field 'nodes[1].bytes.weights' of the graph profile is 5, but 'a', which shares "W" with it, has 4`], // prettier-ignore
    ['a value of two sizes', { ...graph, edges: [['a', 'b', 8, 'h'], [0, 1, 9, 'h']] }, `field 'edges[1][2]' of the graph profile is 9, but edges[0] says 8 for the same value "h"`], // prettier-ignore
    ['another kind of activations', { ...graph, activations: 'none' }, `field 'activations' of the graph profile is "none", but must be "own" or "shared"`], // prettier-ignore
    ['a negative call', { ...graph, callMs: -1 }, "field 'callMs' of the graph profile is -1, but must be a number of 0 or more"], // prettier-ignore
    ['a cycle', { ...graph, edges: [['a', 'b', 1], ['b', 'a', 1]] }, 'has a cycle: b -> a -> b'], // prettier-ignore
  ])('%s', (_what, json, sentence) => {
    expect(refusal(() => parseGraphProfile(JSON.parse(JSON.stringify(json))))).toContain(sentence);
  });

  test('shared weights, values, shared activations and the time of a call are accepted', () => {
    const shared = {
      ...graph,
      nodes: [
        { ...node, shares: 'W' },
        { ...node, name: 'b', shares: 'W' },
        { ...node, name: 'c' },
      ],
      edges: [['a', 'b', 8, 'h'], ['a', 'c', 8, 'h'], ['b', 'c', 2, 'h'], ['a', 'c', 8]], // prettier-ignore
      activations: 'shared',
      callMs: 0.02,
    };
    const profile = parseGraphProfile(shared);
    expect(profile).toBe(shared);
    // 'h' of 'a' is one tensor for two operators, 'h' of 'b' another one, and an edge without a value has its own.
    expect(resolveEdges(profile).map(({ tensor }) => tensor)).toEqual([0, 0, 1, 2]);
  });

  test('a cycle behind other operators is found and printed in order', () => {
    const names = ['start', 'a', 'b', 'c', 'end'];
    const nodes = names.map((name) => ({ name, gpu: 1, cpu: [1], bytes }));
    const edges = [
      ['start', 'a', 1],
      ['a', 'b', 1],
      ['b', 'c', 1],
      ['c', 'a', 1],
      ['c', 'end', 1],
    ];
    const sentence = refusal(() => parseGraphProfile({ ...graph, nodes, edges }));
    expect(sentence).toMatch(/cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)$/);
  });
});
