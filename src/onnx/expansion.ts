/** What a model comes to once the calls of its local functions are replaced by their bodies, as ONNX Runtime does. */
import { encode } from './wire-write.ts';
import { OnnxError } from './error.ts';
import { functionKey } from './graph.ts';
import { allNodes } from './scope.ts';
import type { FunctionProto, ModelProto, NodeProto } from './types.ts';

/** ONNX Runtime takes 2 s for 10,000 nodes of functions, 13 s for 30,000 and minutes for 100,000. */
const expandedNodesMax = 2 ** 15;
/** Each call copies the constants of its body. */
const expandedBytesMax = 2 ** 30;

interface Size {
  readonly nodes: number;
  readonly bytes: number;
}

interface Called extends Size {
  readonly shown: string;
  /** How often the body calls each function. */
  readonly calls: ReadonlyMap<string, number>;
}

/**
 * A few kilobytes of functions that call each other can stand for more nodes than there are atoms, so calls are counted
 * along the call graph and nothing is expanded.
 * @throws OnnxError 'bad-model' for functions that call themselves, or that come to more than ONNX Runtime can open
 */
export function checkExpansion({ graph, functions = [] }: ModelProto): void {
  if (functions.length === 0) return;
  const bodies = new Map<string, FunctionProto>();
  for (const body of functions) bodies.set(keyOf(body.domain, body.name, body.overload), body);
  const called = new Map([...bodies].map(([key, body]) => [key, calledOf(body, bodies)]));
  const sizes = sizesOf(called);
  const { nodes, bytes } = total({ nodes: 0, bytes: 0 }, callsIn(graph.node, bodies), sizes);
  if (nodes > expandedNodesMax) {
    throw bad(
      `its calls of local functions stand for ${counted(nodes)} nodes, and this host opens at most ${expandedNodesMax}`,
    );
  }
  if (bytes > expandedBytesMax) {
    throw bad(
      `its calls of local functions stand for ${counted(bytes)} bytes, and this host opens at most ${expandedBytesMax}`,
    );
  }
}

const bad = (message: string): OnnxError => new OnnxError('bad-model', message);

const counted = (count: number): string => (Number.isSafeInteger(count) ? String(count) : count.toExponential(0));

const keyOf = (domain: string, name: string, overload = ''): string =>
  functionKey(domain === 'ai.onnx' ? '' : domain, name, overload);

function calledOf(body: FunctionProto, bodies: ReadonlyMap<string, FunctionProto>): Called {
  let nodes = 0;
  for (const _ of allNodes(body.node)) nodes++;
  return {
    nodes,
    bytes: encode('FunctionProto', body).byteLength,
    shown: `${body.domain}.${body.name}`,
    calls: callsIn(body.node, bodies),
  };
}

function callsIn(nodes: readonly NodeProto[], bodies: ReadonlyMap<string, FunctionProto>): Map<string, number> {
  const calls = new Map<string, number>();
  for (const { domain, opType, overload } of allNodes(nodes)) {
    const key = keyOf(domain, opType, overload);
    if (bodies.has(key)) calls.set(key, (calls.get(key) ?? 0) + 1);
  }
  return calls;
}

function total(own: Size, calls: ReadonlyMap<string, number>, sizes: ReadonlyMap<string, Size>): Size {
  let { nodes, bytes } = own;
  for (const [key, times] of calls) {
    const size = sizes.get(key)!;
    nodes += times * size.nodes;
    bytes += times * size.bytes;
  }
  return { nodes, bytes };
}

/** The size of each function with the functions that it calls. A chain of calls may be too long for recursion. */
function sizesOf(called: ReadonlyMap<string, Called>): Map<string, Size> {
  const sizes = new Map<string, Size>();
  for (const first of called.keys()) {
    if (sizes.has(first)) continue;
    const path = [{ key: first, left: [...called.get(first)!.calls.keys()] }];
    const open = new Set([first]);
    for (let last = path.at(-1); last !== undefined; last = path.at(-1)) {
      const next = last.left.pop();
      if (next === undefined) {
        const body = called.get(last.key)!;
        sizes.set(last.key, total(body, body.calls, sizes));
        open.delete(last.key);
        path.pop();
      } else if (open.has(next)) {
        throw bad(`its local function '${called.get(next)!.shown}' calls itself, directly or through others`);
      } else if (!sizes.has(next)) {
        open.add(next);
        path.push({ key: next, left: [...called.get(next)!.calls.keys()] });
      }
    }
  }
  return sizes;
}
