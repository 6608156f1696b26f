/** A model whose intermediate results take 100 MB, such as those that segment images: the host against ONNX Runtime itself. */
import { join } from 'node:path';
import { ElementType, GraphBuilder } from '../../src/onnx/index.ts';
import { projectRoot, type Servers, type StartedServer } from '../servers.ts';
import { binaryRequest, mustSend, type HttpRequest } from '../shared/requests.ts';
import { median } from '../shared/statistics.ts';

export interface LargeResults {
  /** Medians of calls that take turns. */
  readonly directMs: number;
  readonly hostMs: number;
  readonly ratio: number;
}

export const largeName = 'large-results';
const channels = 32;
const warmCalls = 4;

/** y = the means of an image after some convolutions, each of whose results takes `size` x `size` x 128 bytes. */
export function largeGraph(size: number): GraphBuilder {
  const graph = new GraphBuilder(largeName);
  const convolution = (value: string, name: string, from: number): string => {
    const weights = Float32Array.from({ length: channels * from }, (_, at) => (((at * 0.618_034) % 1) - 0.5) / from);
    return graph.node('Conv', [value, graph.weight(name, [channels, from, 1, 1], weights)], { kernel_shape: [1, 1] });
  };
  let value = convolution(graph.input('x', ElementType.FLOAT, [1, 1, size, size]), 'first', 1);
  for (let block = 0; block < 5; block++) {
    const inner = convolution(value, `block${block}`, channels);
    value = graph.node('Add', [graph.node('Mul', [inner, graph.node('Sigmoid', [inner])]), value]);
  }
  graph.output(graph.node('GlobalAveragePool', [value]), ElementType.FLOAT, [1, channels, 1, 1], 'y');
  return graph;
}

async function timed(url: string, sent: HttpRequest): Promise<number> {
  const startMs = performance.now();
  await mustSend(url, { method: 'POST', ...sent });
  return performance.now() - startMs;
}

export async function compareLargeResults(
  servers: Servers,
  host: StartedServer,
  { size, rounds }: { readonly size: number; readonly rounds: number },
): Promise<LargeResults> {
  const model = join(servers.folder, 'functions', largeName, 'model.onnx');
  const direct = await servers.start([join(projectRoot, 'bench/http/direct-server.mjs'), model]);
  const values = Float32Array.from({ length: size * size }, (_, at) => (at * 0.618_034) % 1);
  const sent = binaryRequest([1, 1, size, size], values);
  const onHost = (): Promise<number> => timed(`${host.url}/v2/models/${largeName}/infer`, sent);
  const onDirect = (): Promise<number> => timed(direct.url, { body: new Uint8Array(values.buffer) });
  // The first run shows how much memory it takes; soon the function has a process of its own.
  for (let call = 0; call < warmCalls; call++) {
    await onDirect();
    await onHost();
  }
  const times = { direct: [] as number[], host: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    times.direct.push(await onDirect());
    times.host.push(await onHost());
  }
  const [directMs, hostMs] = [median(times.direct), median(times.host)];
  return { directMs, hostMs, ratio: hostMs / directMs };
}
