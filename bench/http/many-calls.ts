/** Whether the host's memory stays as it is over many calls of mixed sizes, after what the first of them make it grow to. */
import { statusBytes } from '../../src/tools/index.ts';
import { tableOf, type BenchmarkTable } from '../benchmark.ts';
import { runLoad } from '../echo.ts';
import { descendants, type StartedServer } from '../servers.ts';
import { bodySizesName, requestOf } from './body-sizes.ts';

/** Bytes of the bodies in turns: small ones are many, and one in sixteen is an image. */
const turns = [16, 4096, 16, 4096, 16, 65_536, 4096, 16, 16, 4096, 110_592, 4096, 16, 65_536, 4096, 602_112];
const connections = 4;
/** Free pages of the C library come and go by so much. */
const varyingBytes = 48e6;

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(0);

export interface ManyCalls {
  readonly table: BenchmarkTable;
  readonly grownBytes: number;
  readonly isFlat: boolean;
}

export async function countOverManyCalls(
  host: StartedServer,
  { calls, parts }: { readonly calls: number; readonly parts: number },
  progress: (text: string) => void,
): Promise<ManyCalls> {
  const path = `/v2/models/${bodySizesName}/infer`;
  const paths = turns.map((bytes) => {
    const { headers, body } = requestOf(bytes, 'binary');
    return { path, headers, bodyBase64: body.toString('base64') };
  });
  const found: { readonly calls: number; readonly hostBytes: number; readonly childrenBytes: number }[] = [];
  const requests = Math.ceil(calls / parts);
  for (let part = 1; part <= parts; part++) {
    progress(`${part * requests} calls of mixed sizes`);
    await runLoad('http/load.mjs', { url: host.url, paths, headers: {}, requests, client: 'raw', connections }, '200');
    const children = await descendants(host.process.pid!);
    found.push({
      calls: part * requests,
      hostBytes: statusBytes('VmRSS', host.process.pid) ?? 0,
      childrenBytes: children.reduce((sum, pid) => sum + (statusBytes('VmRSS', pid) ?? 0), 0),
    });
  }
  // V8 lets garbage grow for some ten thousands of calls before it collects what is old: the least says what stays.
  const later = found.slice(parts / 2);
  const grown = (of: 'hostBytes' | 'childrenBytes'): number =>
    Math.min(...later.map((each) => each[of])) - found[0]![of];
  const grownBytes = Math.max(grown('hostBytes'), grown('childrenBytes'));
  return {
    table: tableOf('memory over calls of mixed sizes', found, [
      ['>CALLS', (each) => String(each.calls)],
      [">HOST'S MB", (each) => megabytes(each.hostBytes)],
      [">ITS PROCESSES' MB", (each) => megabytes(each.childrenBytes)],
    ]),
    grownBytes,
    isFlat: grownBytes <= varyingBytes,
  };
}
