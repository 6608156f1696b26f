import { Command } from 'commander';
import { CudaError, measureTopology, openCuda, type MeasuredTopology } from '../gpu/index.ts';
import { CliError } from './error.ts';
import { formatBytes } from './format.ts';
import { parseCount } from './plan/options.ts';
import { renderTable } from './table.ts';

interface TopologyCommandOptions {
  readonly copyMib: number;
  readonly json?: boolean;
}

export function topologyCommand(): Command {
  return new Command('topology')
    .description(
      'Show the GPUs of this machine, which of them share a PCIe switch and which reach each other, with the bandwidths of ' +
        'copies that are measured now: from pinned host memory to each GPU alone and to each two at once, and from GPU ' +
        'to GPU.',
    )
    .option('--copy-mib <number>', 'size of each copy that is timed, in MiB', parseCount, 64)
    .option('--json', 'print JSON')
    .action(async ({ copyMib, json }: TopologyCommandOptions) => {
      const topology = await measure(copyMib * 2 ** 20);
      console.log(json === true ? JSON.stringify(topology, null, 2) : topologyText(topology));
    });
}

/** Throws CliError. */
async function measure(copyBytes: number): Promise<MeasuredTopology> {
  try {
    using cuda = openCuda({ need: 'driver' });
    return await measureTopology(cuda, { copyBytes });
  } catch (error) {
    if (error instanceof CudaError)
      throw new CliError(`there is nothing to measure: ${error.message}`, { cause: error });
    throw error;
  }
}

const gbps = (value: number): string => value.toFixed(1);

/** The topology as text. */
export function topologyText({ gpus, pairs, copyBytes }: MeasuredTopology): string {
  const gpuRows = gpus.map(({ index, name, pciBusId, switch: shared, numaNode, link, loadGBps, storeGBps }) => [
    String(index),
    name,
    pciBusId,
    String(shared),
    numaNode === null ? '-' : String(numaNode),
    link ?? 'unknown',
    gbps(loadGBps),
    gbps(storeGBps),
  ]);
  const parts = [
    renderTable(
      [
        { title: 'GPU' },
        { title: 'MODEL' },
        { title: 'BUS' },
        { title: 'SWITCH' },
        { title: 'NUMA' },
        { title: 'LINK' },
        { title: 'FROM HOST GB/s', align: 'right' },
        { title: 'TO HOST GB/s', align: 'right' },
      ],
      gpuRows,
    ),
  ];
  if (pairs.length > 0) {
    const alone = (gpu: number): number => gpus[gpu]?.loadGBps ?? 0;
    parts.push(
      renderTable(
        [
          { title: 'PAIR' },
          { title: 'SWITCH' },
          { title: 'PEER ACCESS' },
          { title: 'THERE GB/s', align: 'right' },
          { title: 'BACK GB/s', align: 'right' },
          { title: 'FROM HOST, BOTH GB/s', align: 'right' },
          { title: 'OF TWICE ALONE', align: 'right' },
        ],
        pairs.map(({ gpus: [a, b], peerAccess, peerGBps, loadTogetherGBps }) => [
          `${a} and ${b}`,
          gpus[a]?.switch === gpus[b]?.switch ? 'same' : 'different',
          peerAccess ? 'yes' : 'no',
          peerGBps === null ? '-' : gbps(peerGBps[0]),
          peerGBps === null ? '-' : gbps(peerGBps[1]),
          gbps(loadTogetherGBps),
          `${Math.round((100 * loadTogetherGBps) / Math.max(alone(a) + alone(b), Number.MIN_VALUE))}%`,
        ]),
      ),
    );
  }
  parts.push(`measured on this machine with copies of ${formatBytes(copyBytes)}`);
  return parts.join('\n\n');
}
